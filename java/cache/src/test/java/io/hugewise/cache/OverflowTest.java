package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.cache.Operations.Operation;
import io.hugewise.memory.Backing;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongConsumer;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/// Stack overflows at random depths of each public operation, of caches of each kind: other threads go on, and nothing is
/// lost.
@Timeout(value = 1800, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class OverflowTest {
    private static final Duration LONG = Duration.ofSeconds(120);
    /// Of each operation of each kind of cache; 0: one of each operation, of one kind.
    private static final int OVERFLOWS = Integer.getInteger("hugewise.overflows", 0);
    private static final int KEYS = 6000;
    private static final int STACK_BYTES = 256 << 10;

    enum Kind { PLAIN, EXPIRING, LOADING, LISTENING, WRITE_THROUGH, WRITE_BEHIND }

    private static HugeCacheBuilder<Long, byte[]> builder(Kind kind, Map<Long, byte[]> rows) {
        HugeCacheBuilder<Long, byte[]> builder = HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(4 << 20)
                .memory(options -> options.only(Backing.base()));
        return switch (kind) {
            case PLAIN -> builder.estimateMissRatios();
            case EXPIRING -> builder.expireAfterAccess(Operations.DAY).heapEntries(1000);
            case LOADING -> builder.loader(Operations::value).refreshAfterWrite(Duration.ofMillis(1)).executor(Runnable::run).expireAfterWrite(Operations.DAY);
            case LISTENING -> builder.removalListener((_, _, _) -> {}).executor(Runnable::run);
            case WRITE_THROUGH -> builder.writeThrough(changes -> changes.forEach(change -> write(rows, change)));
            case WRITE_BEHIND -> builder.writeBack(WriteBack.<Long, byte[]>to(changes -> changes.forEach(change -> write(rows, change)))
                    .window(Duration.ofMillis(500)).patience(LONG));
        };
    }

    private static void write(Map<Long, byte[]> rows, CacheWriter.Change<Long, byte[]> change) {
        byte[] value = change.value();
        if (value == null) {
            rows.remove(change.key());
        } else {
            rows.put(change.key(), value);
        }
    }

    /// Runs an operation at some depths of the stack, until it overflows.
    private static long deeper(LongConsumer operation, long number, int stride) {
        if (number % stride == 0) {
            operation.accept(number);
        }
        return 1 + ((number & 64) == 0 ? deeper(operation, number + 1, stride) : wider(operation, number + 1, stride));
    }

    /// The same with a frame of another size.
    private static long wider(LongConsumer operation, long number, int stride) {
        long a = number + 1;
        long b = number ^ stride;
        long c = a * b;
        if (number % stride == 0) {
            operation.accept(number);
        }
        return deeper(operation, number + 1, stride) + a + b + c;
    }

    private static void overflow(String name, LongConsumer operation, Random random) throws InterruptedException {
        long first = random.nextInt(KEYS);
        int stride = 1 + random.nextInt(20);
        Thread overflowing = new Thread(null, () -> {
            try {
                deeper(operation, first, stride);
            } catch (StackOverflowError _) {
                // As it should.
            }
        }, "overflowing", STACK_BYTES + random.nextInt(32) * 4096);
        overflowing.setDaemon(true);
        overflowing.start();
        assertThat(overflowing.join(LONG)).as(name).isTrue();
    }

    private static void check(String name, Runnable task) throws InterruptedException {
        Thread other = Thread.ofPlatform().daemon().start(task);
        assertThat(other.join(LONG)).as("other threads go on after overflows of %s: %s", name, java.util.Arrays.toString(other.getStackTrace())).isTrue();
    }

    private static void useAllKeys(HugeCache<Long, byte[]> cache) {
        for (long key = 0; key < KEYS; key++) {
            cache.put(key, Operations.value(key));
            cache.get(key, Operations::value);
        }
        for (long key = 0; key < KEYS; key += 10) {
            cache.asMap().compute(key, (of, _) -> Operations.value(of));
            cache.invalidate(key);
        }
    }

    @ParameterizedTest
    @EnumSource(Kind.class)
    void otherThreadsGoOnAndNothingIsLost(Kind kind) throws Exception {
        Map<Long, byte[]> rows = new ConcurrentHashMap<>();
        var random = new Random(kind.ordinal());
        Map<String, Operation> operations = new LinkedHashMap<>(Operations.ofKeys(kind != Kind.PLAIN && kind != Kind.LISTENING && kind != Kind.WRITE_THROUGH, kind == Kind.LOADING));
        operations.putAll(Operations.ofCache());
        operations.put("invalidateAll", (cache, _) -> cache.invalidateAll());
        operations.put("clear", (cache, _) -> cache.asMap().clear());
        try (var cache = builder(kind, rows).build()) {
            useAllKeys(cache);
            int turn = 0;
            for (int i = 0; i < Math.max(1, OVERFLOWS); i++) {
                for (var operation : operations.entrySet()) {
                    if (OVERFLOWS == 0 && turn++ % Kind.values().length != kind.ordinal() && !operation.getKey().contains("expir")) {
                        continue;
                    }
                    // In a thread that ends, so that each begins without what the last one has left.
                    overflow(operation.getKey(), key -> operation.getValue().run(cache, key % (2 * KEYS)), random);
                    check(operation.getKey(), () -> {
                        for (long key = 0; key < 200; key++) {
                            cache.put(key, Operations.value(key));
                            cache.get(key + 200, Operations::value);
                        }
                    });
                }
            }
            check("all", () -> useAllKeys(cache));
            check("all", cache::cleanUp);
            assertThat(cache.asMap().keySet().stream().count()).isEqualTo(cache.estimatedSize());
            check("all", cache::flush);
            if (kind == Kind.WRITE_THROUGH || kind == Kind.WRITE_BEHIND) {
                assertThat(cache.asMap()).allSatisfy((key, value) -> assertThat(rows.get(key)).isEqualTo(value));
            }
            assertThat(cache.health().backgroundFailures()).isZero();
            check("all", cache::invalidateAll);
            check("all", cache::cleanUp);
            assertThat(cache.estimatedSize()).isZero();
            assertThat(cache.usedBytes()).isLessThanOrEqualTo(cache.indexBytes() + 4 * 65536);
        }
    }
}
