package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.hugewise.memory.Backing;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

class HeapTierTest {
    private static HugeCacheBuilder<Long, byte[]> builder() {
        return HugeCacheTest.small().heapEntries(100);
    }

    @Test
    void theSecondReadBringsAValueToTheHeapAndTheThirdFindsItThere() {
        try (var cache = builder().build()) {
            cache.put(1L, new byte[] {7});
            byte[] first = cache.getIfPresent(1L);
            byte[] second = cache.getIfPresent(1L);
            assertThat(cache.heapStats().hits()).isZero();
            assertThat(second).isNotSameAs(first);
            for (int i = 0; i < 100; i++) {
                assertThat(cache.getIfPresent(1L)).isSameAs(second);
            }
            assertThat(cache.heapStats()).isEqualTo(new HeapStats(100, 1, 1));
            assertThat(cache.stats().hits()).isEqualTo(102);
            assertThat(cache.stats().hitBytes()).isEqualTo(102);
        }
    }

    @Test
    void aTimeThatIsSetHoldsForTheHeapToo() {
        var now = new AtomicLong();
        try (var cache = builder().ticker(now::get).variableExpiry().build()) {
            cache.put(1L, new byte[1], Duration.ofHours(1));
            for (int i = 0; i < 3; i++) {
                assertThat(cache.getIfPresent(1L)).hasSize(1);
            }
            cache.policy().expireVariably().orElseThrow().setExpiresAfter(1L, Duration.ofSeconds(1));
            now.set(Duration.ofSeconds(2).toNanos());
            assertThat(cache.getIfPresent(1L)).isNull();
        }
    }

    @Test
    void aChangeThatIsWrittenBackLeavesTheHeap() {
        var store = new ConcurrentHashMap<Long, Integer>();
        WriteBack<Long, byte[]> writeBack = WriteBack.to(changes -> changes.forEach(
                change -> store.merge(change.key(), change.value() == null ? 0 : change.value().length, (_, size) -> size)));
        try (var cache = builder().writeBack(writeBack).build()) {
            for (int size = 1; size < 50; size++) {
                cache.put(1L, new byte[size]);
                for (int i = 0; i < 3; i++) {
                    assertThat(cache.getIfPresent(1L)).hasSize(size);
                }
            }
            cache.invalidate(1L);
            assertThat(cache.getIfPresent(1L)).isNull();
            cache.flush();
            assertThat(store).isEqualTo(Map.of(1L, 0));
        }
    }

    @Test
    void timesThatEachReadDeterminesAreRefused() {
        assertThatThrownBy(() -> builder().expireAfterWrite(Duration.ofSeconds(1)).expireAfterAccess(Duration.ofSeconds(1)).build())
                .isInstanceOf(IllegalStateException.class)
                .hasMessageContaining("on the heap");
    }

    @Test
    void closedCachesRefuseReadsOnTheHeap() {
        var cache = builder().build();
        cache.put(1L, new byte[1]);
        for (int i = 0; i < 3; i++) {
            assertThat(cache.getIfPresent(1L)).hasSize(1);
        }
        assertThat(cache.heapStats().hits()).isEqualTo(1);
        cache.close();
        assertThatThrownBy(() -> cache.getIfPresent(1L)).isInstanceOf(IllegalStateException.class);
    }

    @Test
    void changesOfAnEntryRemoveItsValueFromTheHeap() {
        try (var cache = builder().build()) {
            List<Runnable> changes = List.of(() -> cache.put(1L, new byte[2]), () -> cache.invalidate(1L), cache::invalidateAll,
                    () -> cache.asMap().remove(1L), () -> cache.asMap().replace(1L, new byte[2]));
            for (Runnable change : changes) {
                cache.put(1L, new byte[1]);
                for (int i = 0; i < 3; i++) {
                    assertThat(cache.getIfPresent(1L)).hasSize(1);
                }
                assertThat(cache.heapStats().entries()).isEqualTo(1);
                change.run();
                assertThat(cache.heapStats().entries()).isZero();
                byte[] value = cache.getIfPresent(1L);
                assertThat(value == null ? 2 : value.length).isEqualTo(2);
            }
        }
    }

    @Test
    void valuesExpireOnTheHeapToo() {
        var now = new AtomicLong();
        try (var cache = builder().ticker(now::get).expireAfterWrite(Duration.ofSeconds(10)).build()) {
            cache.put(1L, new byte[1]);
            for (int i = 0; i < 3; i++) {
                assertThat(cache.getIfPresent(1L)).hasSize(1);
            }
            now.set(Duration.ofSeconds(10).toNanos());
            assertThat(cache.getIfPresent(1L)).isNull();
            cache.cleanUp();
            assertThat(cache.heapStats().entries()).isZero();
        }
    }

    @Test
    void readsOnTheHeapProlongEntriesThatExpireAfterAccess() {
        var now = new AtomicLong();
        try (var cache = builder().ticker(now::get).expireAfterAccess(Duration.ofSeconds(10)).build()) {
            cache.put(1L, new byte[1]);
            for (int second = 0; second < 60; second += 5) {
                now.set(Duration.ofSeconds(second).toNanos());
                cache.cleanUp();
                assertThat(cache.getIfPresent(1L)).hasSize(1);
            }
            assertThat(cache.heapStats().hits()).isEqualTo(10);
            now.addAndGet(Duration.ofSeconds(10).toNanos());
            assertThat(cache.getIfPresent(1L)).isNull();
        }
    }

    @Test
    void theHeapIsBoundedByWeightAndHasTheMostReadValues() {
        try (var cache = HugeCacheTest.small().heapWeight(50_000, value -> value.length).build()) {
            for (long key = 0; key < 10_000; key++) {
                cache.put(key, new byte[100]);
            }
            var random = new Random(1);
            for (int i = 0; i < 300_000; i++) {
                // Half of all reads are of 200 keys.
                cache.getIfPresent(random.nextBoolean() ? random.nextLong(200) : random.nextLong(10_000));
                assertThat(cache.heapStats().weight()).isLessThanOrEqualTo(50_000);
            }
            assertThat(cache.heapStats().weight()).isGreaterThan(45_000).isEqualTo(100 * cache.heapStats().entries());
            // If they were chosen at random, a fortieth.
            assertThat(cache.heapStats().hits()).isGreaterThan(130_000);
        }
    }

    /// An entry that is read on the heap only is kept in the store, as one that is read there.
    @Test
    void readsOnTheHeapKeepAnEntryInTheStore() {
        try (var cache = builder().build()) {
            for (long key = 0; key < 200_000; key++) {
                cache.put(key, HugeCacheTest.value(key, 500));
                if (key % 10 == 0) {
                    for (long hot = 0; hot < 50; hot++) {
                        cache.getIfPresent(hot);
                    }
                }
            }
            for (long hot = 0; hot < 50; hot++) {
                assertThat(cache.getIfPresent(hot)).isEqualTo(HugeCacheTest.value(hot, 500));
            }
            assertThat(cache.stats().evictions()).isGreaterThan(100_000);
            assertThat(cache.heapStats().entries()).isLessThanOrEqualTo(100);
        }
    }

    @Test
    void versionsOfAKeyDoNotGoBack() throws InterruptedException {
        var failure = new AtomicReference<Throwable>();
        int keys = 64;
        try (var cache = HugeCache.builder(Serializers.longs(), Serializers.longs()).maximumBytes(8 << 20).heapEntries(48)
                .memory(options -> options.only(Backing.base())).build()) {
            List<Thread> threads = new ArrayList<>();
            var writing = new AtomicInteger(2);
            var newest = new AtomicLong[keys];
            for (int key = 0; key < keys; key++) {
                newest[key] = new AtomicLong();
            }
            for (int i = 0; i < 2; i++) {
                int first = i;
                threads.add(Thread.ofPlatform().start(() -> {
                    for (long version = 1; version < 300_000; version++) {
                        int key = (int) (first + 2 * (version * 7 % (keys / 2)));
                        if (version % 3 == 0) {
                            cache.invalidate((long) key);
                        } else {
                            cache.put((long) key, version);
                        }
                        newest[key].set(version);
                    }
                    writing.decrementAndGet();
                }));
                threads.add(Thread.ofPlatform().start(() -> {
                    for (int n = 0; writing.get() > 0; n++) {
                        int key = n / 4 % keys;
                        long before = newest[key].get();
                        Long value = cache.getIfPresent((long) key);
                        if (value != null && value < before) {
                            failure.compareAndSet(null, new AssertionError("key " + key + ": " + value + " after " + before));
                        }
                    }
                }));
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertThat(failure.get()).isNull();
            assertThat(cache.heapStats().hits()).isPositive();
        }
    }
}
