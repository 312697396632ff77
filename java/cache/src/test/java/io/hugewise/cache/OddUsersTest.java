package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntUnaryOperator;
import java.util.function.UnaryOperator;
import java.util.stream.LongStream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;

/// Users of a cache that do what they should not, or cannot do what they should. The cache works as before.
@Timeout(value = 3, unit = TimeUnit.MINUTES, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class OddUsersTest {
    private static final long KEYS = 300;

    @RegisterExtension
    private final SharedMemoryFolder folder = new SharedMemoryFolder();

    private static void works(HugeCache<Long, byte[]> cache) {
        for (long key = 0; key < KEYS; key++) {
            cache.put(key, HugeCacheTest.value(key, 100));
            assertThat(cache.getIfPresent(key)).isEqualTo(HugeCacheTest.value(key, 100));
        }
        assertThat(cache.get(-1L, _ -> new byte[3])).hasSize(3);
    }

    @Test
    void aClockJumpsBackAndForth() {
        long[] times = {Long.MIN_VALUE, -1, 0, 1, Duration.ofDays(1).toNanos(), Long.MAX_VALUE};
        var now = new AtomicLong();
        var random = new Random(1);
        try (var cache = HugeCacheTest.small().ticker(now::get).expireAfterWrite(Duration.ofSeconds(5)).expireAfterAccess(Duration.ofSeconds(3)).build()) {
            for (int i = 0; i < 5000; i++) {
                now.set(times[random.nextInt(times.length)]);
                long key = random.nextLong(KEYS);
                cache.put(key, HugeCacheTest.value(key, 100));
                byte[] found = cache.getIfPresent(random.nextLong(KEYS));
                assertThat(found == null || found.length == 100).isTrue();
                if (i % 500 == 0) {
                    cache.cleanUp();
                }
            }
            works(cache);
        }
    }

    @Test
    void eachCallIsInterrupted() {
        Map<Long, byte[]> rows = new ConcurrentHashMap<>();
        var options = WriteBack.<Long, byte[]>to(changes -> changes.forEach(change -> rows.put(change.key(), change.value())))
                .window(Duration.ofHours(1)).maximumUnwritten(20);
        Set<Long> made = new HashSet<>();
        try (var cache = HugeCacheTest.small().loader(rows::get).writeBack(options).build()) {
            for (long key = 0; key < KEYS; key++) {
                Thread.currentThread().interrupt();
                try {
                    cache.put(key, new byte[1]);
                    made.add(key);
                } catch (UnwrittenException _) {
                    // It would have waited for room.
                }
                assertThat(Thread.interrupted()).isTrue();
            }
            cache.flush();
            assertThat(rows.keySet()).isEqualTo(made);
            works(cache);
        }
    }

    @Test
    void thePoolIsFull() {
        var end = new CountDownLatch(1);
        try (var pool = new ForkJoinPool(1)) {
            pool.execute(() -> {
                try {
                    end.await();
                } catch (InterruptedException _) {
                    // It ends.
                }
            });
            try (var cache = HugeCacheTest.small().executor(pool).refreshAfterWrite(Duration.ofNanos(1)).loader(_ -> new byte[100]).removalListener((_, _, _) -> {}).build()) {
                for (long key = 0; key < KEYS; key++) {
                    assertThat(cache.get(key % 20)).hasSize(100);
                    assertThat(cache.getAll(List.of(key, key + 1))).hasSize(2);
                    var _ = cache.refresh(key);
                    assertThat(cache.get(key)).hasSize(100);
                }
            }
            end.countDown();
        }
    }

    private record Lying(IntUnaryOperator size) implements Serializer<byte[]> {
        @Override
        public int size(byte[] value) {
            return size.applyAsInt(value.length);
        }

        @Override
        public void write(byte[] value, MemorySegment to) {
            MemorySegment.copy(value, 0, to, ValueLayout.JAVA_BYTE, 0, value.length);
        }

        @Override
        public byte[] read(MemorySegment from) {
            return from.toArray(ValueLayout.JAVA_BYTE);
        }
    }

    @Test
    void aSerializerWritesMoreThanItSaid() {
        for (IntUnaryOperator size : List.<IntUnaryOperator>of(length -> length - 1, _ -> 0, _ -> -1, _ -> Integer.MIN_VALUE)) {
            try (var cache = HugeCache.builder(Serializers.longs(), new Lying(size)).maximumBytes(4 << 20).build()) {
                for (long key = 0; key < KEYS; key++) {
                    long own = key;
                    assertThatThrownBy(() -> cache.put(own, new byte[100])).isInstanceOfAny(IndexOutOfBoundsException.class, NegativeArraySizeException.class);
                    assertThat(cache.getIfPresent(key)).isNull();
                }
                assertThat(cache.estimatedSize()).isZero();
            }
        }
    }

    /// A key with another number whenever it is written.
    private static final class Changing {
        private long number;

        @Override
        public int hashCode() {
            return Long.hashCode(number);
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Changing key && key.number == number;
        }
    }

    private static final Serializer<Changing> CHANGING = new Serializer<>() {
        @Override
        public int size(Changing key) {
            return Long.BYTES;
        }

        @Override
        public void write(Changing key, MemorySegment to) {
            to.set(ValueLayout.JAVA_LONG_UNALIGNED, 0, key.number);
            key.number = (key.number * 31 + 7) % KEYS;
        }

        @Override
        public Changing read(MemorySegment from) {
            var key = new Changing();
            key.number = from.get(ValueLayout.JAVA_LONG_UNALIGNED, 0);
            return key;
        }
    };

    @Test
    void keysChange() {
        List<Changing> keys = LongStream.range(0, 20).mapToObj(_ -> new Changing()).toList();
        try (var cache = HugeCache.builder(CHANGING, Serializers.bytes()).maximumBytes(4 << 20).executor(Runnable::run).loader(_ -> new byte[1]).build()) {
            for (int i = 0; i < KEYS; i++) {
                Changing key = keys.get(i % keys.size());
                cache.put(key, new byte[1]);
                assertThat(cache.get(key)).hasSize(1);
                cache.asMap().computeIfPresent(key, (_, value) -> value);
                cache.refresh(key).join();
                cache.getAll(keys);
                cache.invalidateAll(keys);
            }
        }
    }

    private record Reading(UnaryOperator<@Nullable byte[]> read) implements Serializer<byte[]> {
        private static final Serializer<byte[]> BYTES = Serializers.bytes();

        @Override
        public int size(byte[] value) {
            return BYTES.size(value);
        }

        @Override
        public void write(byte[] value, MemorySegment to) {
            BYTES.write(value, to);
        }

        @Override
        public byte[] read(MemorySegment from) {
            return read.apply(BYTES.read(from));
        }
    }

    @Test
    void valuesEqualNoneThatIsReadAgain() {
        try (var cache = HugeCache.builder(Serializers.longs(), new Reading(value -> value)).maximumBytes(4 << 20).build()) {
            for (long key = 0; key < KEYS; key++) {
                cache.put(key, new byte[1]);
            }
            cache.asMap().replaceAll((_, value) -> new byte[value.length + 1]);
            assertThat(cache.asMap().values()).hasSize((int) KEYS).allMatch(value -> value.length == 2);
            assertThatThrownBy(() -> cache.asMap().replaceAll((_, _) -> null)).isInstanceOf(NullPointerException.class);
            assertThat(cache.asMap()).hasSize((int) KEYS);
        }
    }

    @Test
    void aSerializerReadsNull() {
        try (var cache = HugeCache.builder(Serializers.longs(), new Reading(_ -> null)).maximumBytes(4 << 20).build()) {
            cache.put(1L, new byte[1]);
            assertThatThrownBy(() -> cache.asMap().putIfAbsent(1L, new byte[1])).isInstanceOf(NullPointerException.class);
            assertThatThrownBy(() -> cache.get(1L, _ -> new byte[1])).isInstanceOf(NullPointerException.class);
            assertThat(cache.get(2L, _ -> new byte[1])).hasSize(1);
        }
    }

    @Test
    void aFileCannotBeSaved() {
        var builder = HugeCacheTest.small().file(folder.resolve("cache"));
        var cache = builder.build();
        assertThatThrownBy(() -> cache.store().space.close(new Pins(), () -> {
            throw new InternalError("another program has truncated the file");
        })).isInstanceOf(InternalError.class);
        cache.close();
        try (var next = builder.build()) {
            works(next);
        }
    }
}
