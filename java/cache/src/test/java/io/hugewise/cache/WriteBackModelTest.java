package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.random.RandomGenerator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/// A cache in front of a store that fails, against a model: reads see the newest value of each key, and the store has
/// it in the end.
class WriteBackModelTest {
    private static final int THREADS = 3;
    private static final int KEYS = 3_000;
    private static final int OPERATIONS_PER_REOPEN = 10_000;
    private static final int OPERATIONS = Integer.getInteger("hugewise.operations", 20_000);

    private final FlakyStore store = new FlakyStore(0.3, Integer.getInteger("hugewise.delay", 1));
    private final AtomicLong clock = new AtomicLong();
    private final ReentrantReadWriteLock reopening = new ReentrantReadWriteLock();
    private HugeCache<Long, byte[]> cache = open();

    private HugeCache<Long, byte[]> open() {
        return HugeCacheTest.small().ticker(clock::get).expireAfterWrite(Duration.ofSeconds(30))
                .writeBack(WriteBack.to(store).window(Duration.ofMillis(200)).batch(Integer.getInteger("hugewise.batch", 300))).build();
    }

    @Test
    void theStoreHasTheNewestValueOfEachKey() {
        List<CompletableFuture<Map<Long, Long>>> running = new ArrayList<>();
        for (int thread = 0; thread < THREADS; thread++) {
            long first = (long) thread * KEYS;
            running.add(CompletableFuture.supplyAsync(() -> operate(first), task -> Thread.ofPlatform().start(task)));
        }
        Map<Long, Long> model = new HashMap<>();
        running.forEach(of -> model.putAll(of.join()));
        cache.close();
        Map<Long, Long> stored = new HashMap<>();
        store.rows.forEach((key, value) -> stored.put(key, version(value)));
        assertThat(stored).isEqualTo(model);
        assertThat(store.failures.get()).isPositive();
    }

    private Map<Long, Long> operate(long firstKey) {
        var random = RandomGenerator.of("L64X128MixRandom");
        Map<Long, Long> model = new HashMap<>();
        for (long i = 0; i < OPERATIONS; i++) {
            if (random.nextInt(OPERATIONS_PER_REOPEN) == 0) {
                reopen();
            }
            reopening.readLock().lock();
            try {
                operate(random, firstKey + random.nextInt(KEYS), i, model);
            } finally {
                reopening.readLock().unlock();
            }
        }
        return model;
    }

    private void reopen() {
        reopening.writeLock().lock();
        try {
            cache.close();
            cache = open();
        } finally {
            reopening.writeLock().unlock();
        }
    }

    private void operate(RandomGenerator random, long key, long version, Map<Long, Long> model) {
        int size = random.nextInt(200) == 0 ? 200_000 : 8 + random.nextInt(3_000);
        switch (random.nextInt(20)) {
            case 0, 1, 2, 3, 4, 5 -> {
                cache.put(key, value(version, size));
                model.put(key, version);
            }
            case 6, 7 -> {
                cache.invalidate(key);
                model.remove(key);
            }
            case 8 -> {
                byte[] present = cache.asMap().computeIfPresent(key, (_, _) -> value(version, size));
                if (present != null) {
                    model.put(key, version);
                }
            }
            case 9 -> {
                if (cache.asMap().remove(key) != null) {
                    assertThat(model).containsKey(key);
                }
                model.remove(key);
            }
            case 10 -> clock.addAndGet(random.nextLong(Duration.ofSeconds(2).toNanos()));
            case 11 -> {
                if (random.nextInt(500) == 0) {
                    cache.setMaximumBytes(cache.maximumBytes() == 16 << 20 ? 8 << 20 : 16 << 20);
                } else if (random.nextInt(500) == 0) {
                    cache.invalidateAll();
                } else if (random.nextInt(500) == 0) {
                    cache.flush();
                }
            }
            case 12 -> {
                try {
                    cache.get(key, _ -> {
                        throw new IllegalStateException("no connection");
                    });
                } catch (IllegalStateException error) {
                    assertThat(error).hasMessage("no connection");
                }
            }
            case 13, 14, 15 -> {
                byte[] present = cache.getIfPresent(key);
                if (present != null) {
                    assertThat(version(present)).isEqualTo(model.get(key));
                }
            }
            default -> {
                byte[] present = cache.get(key, store.rows::get);
                assertThat(present == null ? null : version(present)).as("key %d", key).isEqualTo(model.get(key));
            }
        }
    }

    /// A measurement: `-Dhugewise.writes=10000000 -Dhugewise.delay=50 -Dhugewise.batch=5000`.
    @Test
    @EnabledIfSystemProperty(named = "hugewise.writes", matches = "\\d+", disabledReason = "takes minutes: -Dhugewise.writes=COUNT")
    void theStoreHasTheNewestValueAfterManyWritesAndEvents() {
        int writes = Integer.getInteger("hugewise.writes");
        int events = 1000;
        long[] model = new long[200_000];
        int[] counts = new int[4];
        var random = RandomGenerator.of("L64X128MixRandom");
        long start = System.nanoTime();
        for (int i = 1; i <= writes; i++) {
            int key = random.nextInt(model.length);
            model[key] = random.nextInt(10) == 0 ? 0 : i;
            if (model[key] == 0) {
                cache.invalidate((long) key);
            } else {
                cache.put((long) key, value(i, 8 + random.nextInt(200)));
            }
            if (i % (writes / events) == 0) {
                int event = random.nextInt(counts.length);
                counts[event]++;
                switch (event) {
                    case 0 -> reopen();
                    case 1 -> {
                        clock.addAndGet(Duration.ofSeconds(31).toNanos());
                        cache.cleanUp();
                    }
                    case 2 -> cache.setMaximumBytes(cache.maximumBytes() == 16 << 20 ? 8 << 20 : 16 << 20);
                    default -> assertThatThrownBy(() -> cache.asMap().compute(0L, (_, _) -> {
                        throw new IllegalStateException("no connection");
                    })).hasMessage("no connection");
                }
            }
        }
        long seconds = Duration.ofNanos(System.nanoTime() - start).toSeconds();
        cache.close();
        for (int key = 0; key < model.length; key++) {
            byte[] row = store.rows.get((long) key);
            assertThat(row == null ? 0 : version(row)).as("key %d", key).isEqualTo(model[key]);
        }
        System.out.printf("%,d writes in %d s; closes, expiries, evictions, exceptions: %s; %,d batches, of which %,d failed%n",
                writes, seconds, Arrays.toString(counts), store.batches.get(), store.failures.get());
    }

    private static byte[] value(long version, int size) {
        return ByteBuffer.allocate(size).putLong(0, version).array();
    }

    private static long version(byte[] value) {
        return ByteBuffer.wrap(value).getLong();
    }
}
