package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Backing;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.random.RandomGenerator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ConcurrencyTest {
    private static final int THREADS = 6;
    private static final int KEYS = 30_000;
    private static final int CLOSES = Integer.getInteger("hugewise.closes", 10);

    /// Has the key at its start, and then numbers that follow from the first.
    private static final Serializer<long[]> CHECKED = new Serializer<>() {
        @Override
        public int size(long[] value) {
            return value.length * Long.BYTES;
        }

        @Override
        public void write(long[] value, MemorySegment to) {
            MemorySegment.copy(value, 0, to, ValueLayout.JAVA_LONG_UNALIGNED, 0, value.length);
        }

        @Override
        public long[] read(MemorySegment from) {
            return from.toArray(ValueLayout.JAVA_LONG_UNALIGNED);
        }
    };

    private static long[] value(long key, long version, int size) {
        long[] value = new long[size + 2];
        value[0] = key;
        value[1] = version;
        for (int i = 2; i < value.length; i++) {
            value[i] = value[i - 1] * 6364136223846793005L + key;
        }
        return value;
    }

    private static boolean isWhole(long key, long[] value) {
        for (int i = 2; i < value.length; i++) {
            if (value[i] != value[i - 1] * 6364136223846793005L + key) {
                return false;
            }
        }
        return value[0] == key;
    }

    private static HugeCache<Long, long[]> cache() {
        return HugeCache.builder(Serializers.longs(), CHECKED).maximumBytes(8 << 20).memory(options -> options.only(Backing.base())).build();
    }

    /// Runs random operations until a number is done or the cache is closed.
    private static void operate(HugeCache<Long, long[]> cache, int operations, AtomicReference<Throwable> failure) {
        var random = RandomGenerator.of("L64X128MixRandom");
        try {
            for (int i = 0; i < operations; i++) {
                long key = (long) Math.abs(random.nextGaussian() * KEYS / 3);
                int size = random.nextInt(100) == 0 ? 12_000 : random.nextInt(100);
                switch (random.nextInt(8)) {
                    case 0, 1 -> cache.put(key, value(key, i, size));
                    case 2 -> cache.invalidate(key);
                    case 3 -> check(key, cache.get(key, k -> value(k, 0, size)));
                    case 4 -> cache.read(key, bytes -> check(key, bytes.toArray(ValueLayout.JAVA_LONG_UNALIGNED)));
                    default -> check(key, cache.getIfPresent(key));
                }
                if (cache.usedBytes() > cache.maximumBytes()) {
                    throw new AssertionError(cache.usedBytes() + " bytes are in use");
                }
            }
        } catch (Throwable error) {
            failure.compareAndSet(null, error);
        }
    }

    private static long check(long key, long[] value) {
        if (value != null && !isWhole(key, value)) {
            throw new AssertionError("the value of " + key + " is torn");
        }
        return key;
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void noValueIsTornOrOfAnotherKey(boolean isVirtual) throws InterruptedException {
        var failure = new AtomicReference<Throwable>();
        try (var cache = cache()) {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < THREADS; i++) {
                var builder = isVirtual ? Thread.ofVirtual() : Thread.ofPlatform();
                threads.add(builder.start(() -> operate(cache, 150_000, failure)));
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertThat(failure.get()).isNull();
            assertThat(cache.stats().evictions()).isGreaterThan(1000);
            // Nothing is evicted in advance any more.
            cache.cleanUp();
            int entries = cache.asMap().entrySet().stream().mapToInt(entry -> isWhole(entry.getKey(), entry.getValue()) ? 1 : -KEYS).sum();
            assertThat(entries).isEqualTo((int) cache.estimatedSize());
            cache.invalidateAll();
            cache.cleanUp();
            assertThat(cache.estimatedSize()).isZero();
            assertThat(cache.usedBytes()).isLessThanOrEqualTo(cache.indexBytes() + 3 * 65536);
        }
    }

    @Test
    void closingEndsUseWithAnException() throws InterruptedException {
        for (int close = 0; close < CLOSES; close++) {
            var failure = new AtomicReference<Throwable>();
            var cache = cache();
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                threads.add(Thread.ofPlatform().start(() -> operate(cache, Integer.MAX_VALUE, failure)));
            }
            while (cache.stats().hits() < 20_000L * close / CLOSES) {
                Thread.onSpinWait();
            }
            cache.close();
            for (Thread thread : threads) {
                thread.join();
            }
            assertThat(failure.get()).isInstanceOf(IllegalStateException.class).hasMessageContaining("closed");
        }
    }

    /// Each thread writes versions of its own keys, and reads all: no thread may see an older version after a newer one.
    @Test
    void versionsOfAKeyDoNotGoBack() throws InterruptedException {
        var failure = new AtomicReference<Throwable>();
        int keys = 64;
        try (var cache = cache()) {
            List<Thread> threads = new ArrayList<>();
            var writing = new AtomicInteger(2);
            for (int i = 0; i < 2; i++) {
                int first = i;
                threads.add(Thread.ofPlatform().start(() -> {
                    for (long version = 1; version < 200_000; version++) {
                        long key = first + 2 * (version % (keys / 2));
                        cache.put(key, value(key, version, 10));
                    }
                    writing.decrementAndGet();
                }));
            }
            for (int i = 0; i < 2; i++) {
                threads.add(Thread.ofPlatform().start(() -> {
                    long[] newest = new long[keys];
                    for (int n = 0; writing.get() > 0; n++) {
                        int key = n % keys;
                        long[] value = cache.getIfPresent((long) key);
                        if (value != null && value[1] < newest[key]) {
                            failure.compareAndSet(null, new AssertionError(newest[key] + ", then " + value[1]));
                        }
                        newest[key] = value == null ? newest[key] : value[1];
                    }
                }));
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertThat(failure.get()).isNull();
        }
    }

    /// A key that is only replaced is never missing, while the index grows and shrinks around it.
    @Test
    void keysThatAreReplacedAreNeverMissing() throws InterruptedException {
        var failure = new AtomicReference<Throwable>();
        try (var cache = HugeCache.builder(Serializers.longs(), Serializers.longs()).maximumBytes(64 << 20)
                .memory(options -> options.only(Backing.base())).build()) {
            int keys = 1000;
            for (long key = 0; key < keys; key++) {
                cache.put(key, key);
            }
            var writing = new AtomicInteger(2);
            Thread others = Thread.ofPlatform().start(() -> {
                for (long key = keys; key < 400_000; key++) {
                    cache.put(key, key);
                    if (key % 2 == 0 && key - 300 >= keys) {
                        cache.invalidate(key - 300);
                    }
                }
                writing.decrementAndGet();
            });
            Thread replacing = Thread.ofPlatform().start(() -> {
                for (long i = 0; i < 400_000; i++) {
                    cache.put(i % keys, i % keys);
                }
                writing.decrementAndGet();
            });
            for (long n = 0; writing.get() > 0; n++) {
                long key = n % keys;
                Long value = cache.getIfPresent(key);
                if (value == null || value != key) {
                    failure.compareAndSet(null, new AssertionError(key + " has " + value));
                }
            }
            others.join();
            replacing.join();
            assertThat(cache.stats().evictions()).isZero();
            assertThat(failure.get()).isNull();
        }
    }
}
