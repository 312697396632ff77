package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.junit.jupiter.api.Test;

class LoadingTest {
    private static Map<Long, byte[]> values(Set<? extends Long> keys) {
        Map<Long, byte[]> values = new HashMap<>();
        keys.forEach(key -> values.put(key, HugeCacheTest.value(key, 10)));
        return values;
    }

    @Test
    void missingValuesAreLoadedTogether() {
        List<Set<? extends Long>> loads = new ArrayList<>();
        try (var cache = HugeCacheTest.small().build()) {
            cache.put(2L, new byte[] {2});
            Map<Long, byte[]> all = cache.getAll(List.of(3L, 2L, 1L, 3L), keys -> {
                loads.add(keys);
                Map<Long, byte[]> values = values(Set.of(1L, 9L));
                assertThat(keys).isEqualTo(Set.of(1L, 3L));
                return values;
            });
            // 3 has no value, and 9 was not asked for.
            assertThat(all.keySet()).containsExactly(2L, 1L);
            assertThat(all.get(2L)).hasSize(1);
            assertThat(cache.getIfPresent(1L)).isEqualTo(HugeCacheTest.value(1, 10));
            assertThat(cache.getIfPresent(9L)).isNotNull();
            assertThat(loads).hasSize(1);
            assertThat(cache.getAll(List.of(1L, 2L), _ -> {
                throw new AssertionError("nothing is missing");
            })).hasSize(2);
        }
    }

    @Test
    void eachKeyIsSerializedOnceForALoad() {
        var written = new AtomicInteger();
        Serializer<Long> longs = Serializers.longs();
        Serializer<Long> counting = new Serializer<>() {
            @Override
            public int size(Long key) {
                return longs.size(key);
            }

            @Override
            public void write(Long key, MemorySegment to) {
                written.incrementAndGet();
                longs.write(key, to);
            }

            @Override
            public Long read(MemorySegment from) {
                return longs.read(from);
            }
        };
        try (var cache = HugeCache.builder(counting, Serializers.bytes()).maximumBytes(4 << 20).build()) {
            assertThat(cache.get(1L, key -> HugeCacheTest.value(key, 10))).hasSize(10);
            assertThat(written).hasValue(1);
            assertThat(cache.getAll(List.of(1L, 2L, 3L), LoadingTest::values)).hasSize(3);
            assertThat(written).hasValue(4);
        }
    }

    @Test
    void twoBulkLoadsOfTheSameKeysLoadEachOnce() throws Exception {
        var loaded = new AtomicInteger();
        var begun = new CountDownLatch(2);
        try (var cache = HugeCacheTest.small().build()) {
            Function<Set<? extends Long>, Map<Long, byte[]>> loader = keys -> {
                begun.countDown();
                HugeCacheTest.await(begun);
                loaded.addAndGet(keys.size());
                return values(keys);
            };
            // Each begins with a key of its own, so both load, and wait for each other's.
            var first = CompletableFuture.supplyAsync(() -> cache.getAll(List.of(1L, 3L, 4L), loader), Thread::startVirtualThread);
            var second = CompletableFuture.supplyAsync(() -> cache.getAll(List.of(2L, 4L, 3L), loader), Thread::startVirtualThread);
            assertThat(first.get()).hasSize(3);
            assertThat(second.get()).hasSize(3);
            assertThat(loaded).hasValue(4);
        }
    }

    @Test
    void aBulkLoaderThatFailsLeavesNothingBehind() {
        try (var cache = HugeCacheTest.small().build()) {
            assertThatThrownBy(() -> cache.getAll(List.of(1L, 2L), _ -> {
                throw new IllegalStateException("no connection");
            })).hasMessage("no connection");
            assertThat(cache.getAll(List.of(1L, 2L), LoadingTest::values)).hasSize(2);
            assertThat(cache.stats().failedLoads()).isEqualTo(1);
            assertThat(cache.stats().loads()).isEqualTo(1);
        }
    }

    @Test
    void theLoaderOfTheCacheLoadsOneOrAll() {
        CacheLoader<Long, byte[]> loader = new CacheLoader<>() {
            @Override
            public byte[] load(Long key) throws IOException {
                if (key < 0) {
                    throw new IOException("no row " + key);
                }
                return key == 0 ? null : new byte[] {1};
            }

            @Override
            public Map<Long, byte[]> loadAll(Set<? extends Long> keys) {
                return values(keys);
            }
        };
        try (var cache = HugeCacheTest.small().loader(loader).build()) {
            assertThat(cache.get(1L)).hasSize(1);
            assertThat(cache.get(0L)).isNull();
            assertThatThrownBy(() -> cache.get(-1L)).isInstanceOf(CompletionException.class).hasRootCauseMessage("no row -1");
            assertThat(cache.getAll(List.of(1L, 2L)).get(2L)).hasSize(10);
        }
        try (var cache = HugeCacheTest.small().loader(key -> new byte[key.intValue()]).build()) {
            assertThat(cache.getAll(List.of(1L, 2L)).get(2L)).hasSize(2);
        }
        try (var cache = HugeCacheTest.small().build()) {
            assertThatThrownBy(() -> cache.get(1L)).isInstanceOf(IllegalStateException.class);
        }
    }

    @Test
    void oldValuesAreLoadedAgainWhenTheyAreRead() {
        var now = new AtomicLong();
        var version = new AtomicInteger(1);
        List<Runnable> tasks = new ArrayList<>();
        try (var cache = HugeCacheTest.small().ticker(now::get).refreshAfterWrite(Duration.ofSeconds(10)).executor(tasks::add)
                .loader(_ -> new byte[version.get()]).build()) {
            assertThat(cache.get(1L)).hasSize(1);
            now.set(Duration.ofSeconds(9).toNanos());
            assertThat(cache.get(1L)).hasSize(1);
            assertThat(tasks).isEmpty();
            now.set(Duration.ofSeconds(11).toNanos());
            version.set(2);
            // The old value is returned until the load has ended, and there is one load.
            assertThat(cache.get(1L)).hasSize(1);
            assertThat(cache.get(1L)).hasSize(1);
            assertThat(tasks).hasSize(1);
            tasks.getFirst().run();
            assertThat(cache.get(1L)).hasSize(2);
            assertThat(tasks).hasSize(1);
        }
    }

    @Test
    void aRefreshDoesNotReplaceANewerValue() throws Exception {
        var cache = new HugeCache<?, ?>[1];
        try (var refreshed = HugeCacheTest.small().executor(Runnable::run).loader(key -> {
            @SuppressWarnings("unchecked")
            var same = (HugeCache<Long, byte[]>) cache[0];
            same.put(key, new byte[7]);
            return new byte[3];
        }).build()) {
            cache[0] = refreshed;
            refreshed.put(1L, new byte[1]);
            assertThat(refreshed.refresh(1L).get()).hasSize(3);
            assertThat(refreshed.getIfPresent(1L)).hasSize(7);
        }
    }

    @Test
    void aRefreshRemovesWhatIsGoneAndKeepsWhatCannotBeLoaded() {
        try (var cache = HugeCacheTest.small().executor(Runnable::run).loader(key -> {
            if (key == 2) {
                throw new IOException("no connection");
            }
            return null;
        }).build()) {
            cache.put(1L, new byte[1]);
            cache.put(2L, new byte[1]);
            assertThat(cache.refresh(1L)).isCompletedWithValue(null);
            assertThat(cache.getIfPresent(1L)).isNull();
            assertThat(cache.refresh(2L)).isCompletedExceptionally();
            assertThat(cache.getIfPresent(2L)).hasSize(1);
        }
    }

    @Test
    void aValueThatIsPutDuringItsLoadStays() {
        try (var cache = HugeCacheTest.small().build()) {
            byte[] loaded = cache.get(1L, key -> {
                cache.put(key, new byte[7]);
                cache.invalidate(key);
                cache.put(key, new byte[8]);
                return new byte[3];
            });
            assertThat(loaded).hasSize(3);
            assertThat(cache.getIfPresent(1L)).hasSize(8);
        }
    }

    @Test
    void keysThatAreArraysAreLoadedOnce() throws Exception {
        var loads = new AtomicInteger();
        var begun = new CountDownLatch(1);
        var end = new CountDownLatch(1);
        try (var cache = HugeCache.builder(Serializers.bytes(), Serializers.longs()).maximumBytes(4 << 20)
                .memory(options -> options.only(io.hugewise.memory.Backing.base())).build()) {
            var first = CompletableFuture.supplyAsync(() -> cache.get(new byte[] {1}, _ -> {
                loads.incrementAndGet();
                begun.countDown();
                HugeCacheTest.await(end);
                return 5L;
            }));
            begun.await();
            var second = new CompletableFuture<Long>();
            Thread waiting = Thread.ofVirtual().start(() -> second.complete(cache.get(new byte[] {1}, _ -> {
                loads.incrementAndGet();
                return 6L;
            })));
            while (waiting.getState() != Thread.State.WAITING) {
                Thread.onSpinWait();
            }
            end.countDown();
            assertThat(first.get()).isEqualTo(second.get()).isEqualTo(5L);
            assertThat(loads).hasValue(1);
        }
    }
}
