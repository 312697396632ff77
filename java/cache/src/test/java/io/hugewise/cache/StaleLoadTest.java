package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/// A thread changes the database, then the cache, and reads, while a load of another thread has the old row.
class StaleLoadTest {
    private static final String KEY = "key";
    private static final long ROUNDS_NANOS = TimeUnit.SECONDS.toNanos(1);

    private interface Change {
        void make(HugeCache<String, String> cache);
    }

    private interface Read {
        Object read(HugeCache<String, String> cache, Function<String, String> database);
    }

    static Stream<Arguments> all() {
        Map<String, Change> changes = new HashMap<>();
        changes.put("invalidate", cache -> cache.invalidate(KEY));
        changes.put("invalidate keys", cache -> cache.invalidateAll(List.of("other", KEY)));
        changes.put("invalidate all", HugeCache::invalidateAll);
        changes.put("clear", cache -> cache.asMap().clear());
        changes.put("remove", cache -> cache.asMap().remove(KEY));
        changes.put("put", cache -> cache.put(KEY, "new"));
        changes.put("put and invalidate", cache -> {
            cache.put(KEY, "new");
            cache.invalidate(KEY);
        });
        changes.put("put and remove the value", cache -> {
            cache.put(KEY, "new");
            cache.asMap().remove(KEY, "new");
        });
        changes.put("put if absent", cache -> cache.putIfAbsent(KEY, "new"));
        changes.put("compute", cache -> cache.asMap().compute(KEY, (_, _) -> "new"));
        changes.put("compute and remove", cache -> {
            cache.asMap().compute(KEY, (_, _) -> "new");
            cache.asMap().compute(KEY, (_, _) -> null);
        });
        Map<String, Read> reads = new HashMap<>();
        reads.put("get", (cache, _) -> cache.get(KEY));
        reads.put("get with a function", (cache, database) -> cache.get(KEY, database));
        reads.put("getAll", (cache, _) -> cache.getAll(Set.of(KEY)).get(KEY));
        reads.put("refresh", (cache, _) -> cache.refresh(KEY).join());
        List<Arguments> all = new ArrayList<>();
        for (String first : new String[] {"get", "getAll", "refresh"}) {
            changes.forEach((change, make) -> reads.forEach((read, reader) -> {
                for (String writer : new String[] {"no writer", "write through", "write back"}) {
                    all.add(Arguments.of(first, change, read, writer, make, reader));
                }
            }));
        }
        return all.stream();
    }

    @ParameterizedTest(name = "{0}, {1}, {2}, {3}")
    @MethodSource("all")
    void aReadAfterAChangeDoesNotSeeALoadFromBefore(String first, String changeName, String readName, String writer, Change change, Read read) throws Exception {
        var row = new AtomicReference<>("old");
        var began = new CountDownLatch(1);
        var goesOn = new CountDownLatch(1);
        var isFirst = new AtomicBoolean(true);
        CacheLoader<String, String> loader = _ -> {
            String value = row.get();
            if (isFirst.getAndSet(false)) {
                began.countDown();
                goesOn.await();
            }
            return value;
        };
        var builder = HugeCache.builder(Serializers.strings(), Serializers.strings()).maximumBytes(4 << 20)
                .memory(options -> options.only(io.hugewise.memory.Backing.base())).loader(loader).executor(task -> Thread.ofVirtual().start(task));
        switch (writer) {
            case "write through" -> builder.writeThrough(_ -> {});
            case "write back" -> builder.writeBack(WriteBack.to(_ -> {}));
            default -> {}
        }
        try (var cache = builder.build()) {
            Thread slow = Thread.ofVirtual().start(() -> {
                switch (first) {
                    case "get" -> cache.get(KEY);
                    case "getAll" -> cache.getAll(List.of(KEY, "beside"));
                    default -> cache.refresh(KEY).join();
                }
            });
            began.await();
            row.set("new");
            change.make(cache);
            // A read that joins the old load would wait for ever.
            assertThat(read.read(cache, _ -> row.get())).isEqualTo("new");
            goesOn.countDown();
            slow.join();
            assertThat(cache.getIfPresent(KEY)).isIn("new", null);
            assertThat(cache.get(KEY)).isEqualTo("new");
        }
    }

    /// The load of the other thread may end at any moment of the change and of the read after it.
    @Test
    void aReadAfterAChangeDoesNotJoinALoadThatJustEnds() throws Exception {
        var round = new AtomicLong();
        var row = new AtomicLong();
        long end = System.nanoTime() + ROUNDS_NANOS;
        try (var cache = HugeCache.builder(Serializers.longs(), Serializers.longs()).maximumBytes(16 << 20)
                .memory(options -> options.only(io.hugewise.memory.Backing.base())).build()) {
            Thread other = Thread.ofPlatform().start(() -> {
                for (long seen = 0; seen >= 0;) {
                    long now = round.get();
                    if (now > seen) {
                        cache.get(now, _ -> row.get());
                    } else if (now == seen) {
                        Thread.onSpinWait();
                    }
                    seen = now;
                }
            });
            for (long key = 1; System.nanoTime() < end; key++) {
                row.set(-key);
                round.set(key);
                for (long spins = key % 64; spins > 0; spins--) {
                    Thread.onSpinWait();
                }
                row.set(key);
                cache.invalidate(key);
                assertThat(cache.get(key, _ -> row.get())).isEqualTo(key);
            }
            round.set(-1);
            other.join();
        }
    }

    @Test
    void aValueThatWasLoadedBesideOthersIsNotAddedAfterItsRemoval() {
        try (var cache = HugeCacheTest.small().build()) {
            Map<Long, byte[]> loaded = cache.getAll(Set.of(1L), _ -> {
                cache.invalidate(2L);
                return Map.of(1L, new byte[1], 2L, new byte[2]);
            });
            assertThat(loaded).containsOnlyKeys(1L);
            assertThat(cache.getIfPresent(1L)).hasSize(1);
            assertThat(cache.getIfPresent(2L)).isNull();
            cache.getAll(Set.of(3L), _ -> Map.of(3L, new byte[3], 4L, new byte[4]));
            assertThat(Objects.requireNonNull(cache.getIfPresent(4L))).hasSize(4);
        }
    }
}
