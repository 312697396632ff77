package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.hugewise.memory.Backing;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/// Functions that are passed to a cache and do not return, or use the cache again.
@Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StallingFunctionsTest {
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final long STALLED = 3;

    private final CountDownLatch begun = new CountDownLatch(1);
    private final CountDownLatch end = new CountDownLatch(1);
    private final AtomicInteger stalls = new AtomicInteger();
    private volatile String stalling = "";

    @AfterEach
    void end() {
        end.countDown();
    }

    /// Does not return if it is the one to stall, and was not called before.
    private void stall(String function) {
        if (stalling.equals(function) && stalls.getAndIncrement() == 0) {
            begun.countDown();
            try {
                end.await();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private final class Stalling implements Serializer<byte[]> {
        @Override
        public int size(byte[] value) {
            stall("size");
            return value.length;
        }

        @Override
        public void write(byte[] value, MemorySegment to) {
            stall("write");
            Serializers.bytes().write(value, to);
        }

        @Override
        public byte[] read(MemorySegment from) {
            stall("deserialise");
            return Serializers.bytes().read(from);
        }
    }

    enum Function { WRITE, DESERIALISE, READ, ITERATE, REPLACE, COMPUTE, LOAD, LISTENER, EXECUTOR, WEIGHER, EXPIRY, REMOVE_OLD, EVICTED, STORE }

    private HugeCacheBuilder<Long, byte[]> builder(Function function) {
        HugeCacheBuilder<Long, byte[]> builder = HugeCache.builder(Serializers.longs(), new Stalling()).maximumBytes(16 << 20)
                .memory(options -> options.only(Backing.base()))
                .removalListener((_, _, _) -> stall("listener"))
                .executor(task -> {
                    stall("executor");
                    task.run();
                });
        if (function == Function.STORE) {
            builder.writeThrough(_ -> stall("store"));
        }
        if (function == Function.EXPIRY) {
            return builder.expireAfter(new Expiry<Long, byte[]>() {
                @Override
                public Duration expireAfterCreate(Long key, byte[] value) {
                    return Duration.ofDays(1);
                }

                @Override
                public Duration expireAfterUpdate(Long key, byte[] value, Duration remaining) {
                    return remaining;
                }

                @Override
                public Duration expireAfterRead(Long key, byte[] value, Duration remaining) {
                    stall("expiry");
                    return Duration.ofDays(2);
                }
            });
        }
        return builder.heapWeight(10_000, _ -> {
            stall("weigher");
            return 1;
        });
    }

    /// Calls a function of the cache's user that does not return.
    private void call(Function function, HugeCache<Long, byte[]> cache) {
        byte[] one = {1};
        switch (function) {
            case WRITE, STORE -> cache.put(STALLED, one);
            case DESERIALISE, WEIGHER, EXPIRY -> {
                cache.getIfPresent(STALLED);
                cache.getIfPresent(STALLED);
                cache.getIfPresent(STALLED);
            }
            case READ -> cache.read(STALLED, _ -> {
                stall("read");
                return 0;
            });
            case ITERATE -> cache.asMap().forEach((_, _) -> {});
            case REPLACE -> cache.asMap().put(STALLED, one);
            case COMPUTE -> cache.asMap().compute(STALLED, (_, _) -> {
                stall("compute");
                return one;
            });
            case LOAD -> cache.get(-1L, _ -> {
                stall("load");
                return one;
            });
            case LISTENER, EXECUTOR -> cache.invalidate(STALLED);
            case REMOVE_OLD -> cache.asMap().remove(STALLED, one);
            case EVICTED -> {
                for (long key = 1_000_000; stalls.get() == 0; key++) {
                    cache.put(key, new byte[500]);
                }
            }
        }
    }

    private static String name(Function function) {
        return switch (function) {
            case ITERATE, REPLACE, REMOVE_OLD -> "deserialise";
            case EVICTED -> "listener";
            default -> function.name().toLowerCase(java.util.Locale.ROOT);
        };
    }

    @ParameterizedTest
    @EnumSource(Function.class)
    void threadsThatUseOtherKeysDoNotWait(Function function) throws Exception {
        try (var cache = builder(function).build()) {
            for (long key = 0; key < 1000; key++) {
                cache.put(key, new byte[] {1});
            }
            stalling = name(function);
            Thread stalled = Thread.startVirtualThread(() -> call(function, cache));
            assertThat(begun.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
            // Twice what the memory can have, so evictions are needed, and memory of all entries is used again.
            long rejections = cache.stats().rejections();
            var others = CompletableFuture.runAsync(() -> {
                for (long key = 10_000; key < 70_000; key++) {
                    cache.put(key, new byte[500]);
                    cache.getIfPresent(key - 10);
                    cache.invalidate(key - 500);
                }
                cache.asMap().compute(5L, (_, _) -> new byte[2]);
                cache.get(6L, _ -> new byte[2]);
                cache.cleanUp();
                cache.setMaximumBytes(cache.maximumBytes() / 2);
                cache.invalidateAll();
            }, task -> Thread.ofPlatform().daemon().start(task));
            others.get(LONG.toSeconds(), TimeUnit.SECONDS);
            assertThat(cache.stats().rejections()).isEqualTo(rejections);
            end.countDown();
            assertThat(stalled.join(LONG)).isTrue();
        }
    }

    @Test
    void aCacheIsClosedWhileAFunctionReads() throws Exception {
        var cache = builder(Function.READ).build();
        stalling = "read";
        cache.put(STALLED, new byte[1]);
        Thread stalled = Thread.startVirtualThread(() -> call(Function.READ, cache));
        begun.await();
        Thread closing = Thread.ofPlatform().daemon().start(cache::close);
        assertThat(closing.join(LONG)).isTrue();
        end.countDown();
        assertThat(stalled.join(LONG)).isTrue();
    }

    /// Functions of serializers that put, and listeners that put.
    @Test
    void functionsMayUseTheirCache() throws Exception {
        var cache = new AtomicReference<HugeCache<Long, byte[]>>();
        var depth = new AtomicInteger();
        Serializer<byte[]> using = new Serializer<>() {
            @Override
            public int size(byte[] value) {
                return value.length;
            }

            @Override
            public void write(byte[] value, MemorySegment to) {
                use();
                Serializers.bytes().write(value, to);
            }

            @Override
            public byte[] read(MemorySegment from) {
                use();
                return Serializers.bytes().read(from);
            }

            private void use() {
                if (depth.getAndIncrement() == 0) {
                    cache.get().put(-1L, new byte[500]);
                    cache.get().getIfPresent(-1L);
                    cache.get().invalidate(-1L);
                }
                depth.decrementAndGet();
            }
        };
        cache.set(HugeCache.builder(Serializers.longs(), using).maximumBytes(8 << 20).memory(options -> options.only(Backing.base()))
                .executor(Runnable::run)
                .removalListener((key, value, cause) -> cache.get().put(key < 0 ? key - 1 : -key, value))
                .build());
        try (var of = cache.get()) {
            Thread thread = Thread.ofPlatform().daemon().start(() -> {
                for (long key = 1; key < 40_000; key++) {
                    of.put(key, new byte[500]);
                    of.getIfPresent(key / 2);
                }
                of.invalidateAll();
            });
            assertThat(thread.join(LONG)).isTrue();
        }
    }

    // --- Recursion ---------------------------------------------------------------------------------

    @Test
    void recursiveLoadsOfAKeyThrow() {
        try (var cache = HugeCacheTest.small().build()) {
            assertThatThrownBy(() -> cache.get(1L, key -> cache.get(key, _ -> new byte[1]))).isInstanceOf(IllegalStateException.class);
            assertThatThrownBy(() -> cache.get(1L, _ -> cache.get(2L, _ -> cache.get(1L, _ -> new byte[1])))).isInstanceOf(IllegalStateException.class);
            assertThatThrownBy(() -> cache.getAll(Set.of(1L, 2L), _ -> Map.of(1L, cache.get(2L, _ -> new byte[1])))).isInstanceOf(IllegalStateException.class);
            assertThatThrownBy(() -> cache.asMap().computeIfAbsent(1L, key -> cache.asMap().computeIfAbsent(key, _ -> new byte[1])))
                    .isInstanceOf(IllegalStateException.class);
            assertThat(cache.get(1L, _ -> cache.get(2L, _ -> new byte[2]))).hasSize(2);
            assertThat(cache.getIfPresent(2L)).hasSize(2);
        }
    }

    /// Each of several threads loads or computes its own key, and needs that of the next thread.
    @ParameterizedTest
    @ValueSource(ints = {2, 3, 5})
    void threadsThatWouldWaitForEachOtherThrow(int count) throws Exception {
        for (boolean isLoad : new boolean[] {true, false}) {
            try (var cache = HugeCacheTest.small().build()) {
                var barrier = new CyclicBarrier(count);
                var refused = new AtomicInteger();
                List<Thread> threads = new ArrayList<>();
                for (long i = 0; i < count; i++) {
                    long own = i;
                    long next = (i + 1) % count;
                    threads.add(Thread.startVirtualThread(() -> {
                        try {
                            if (isLoad) {
                                cache.get(own, _ -> {
                                    await(barrier);
                                    return cache.get(next, _ -> new byte[1]);
                                });
                            } else {
                                cache.asMap().compute(own, (_, _) -> {
                                    await(barrier);
                                    cache.put(next, new byte[1]);
                                    return new byte[2];
                                });
                            }
                        } catch (IllegalStateException _) {
                            refused.incrementAndGet();
                        }
                    }));
                }
                for (Thread thread : threads) {
                    assertThat(thread.join(LONG)).isTrue();
                }
                assertThat(refused.get()).isPositive();
                assertThat(cache.get(100L, _ -> new byte[3])).hasSize(3);
                cache.put(0L, new byte[4]);
                assertThat(cache.get(0L, _ -> new byte[5])).hasSize(4);
            }
        }
    }

    private static void await(CyclicBarrier barrier) {
        try {
            barrier.await();
        } catch (Exception error) {
            throw new IllegalArgumentException(error);
        }
    }

    // --- The same key ------------------------------------------------------------------------------

    @Test
    void waitsForTheSameKeyEndWithAnInterruption() throws Exception {
        for (boolean isLoad : new boolean[] {true, false}) {
            try (var cache = HugeCacheTest.small().build()) {
                var hasBegun = new CountDownLatch(1);
                var release = new CountDownLatch(1);
                Thread owner = Thread.startVirtualThread(() -> {
                    if (isLoad) {
                        cache.get(1L, _ -> stalled(hasBegun, release));
                    } else {
                        cache.asMap().compute(1L, (_, _) -> stalled(hasBegun, release));
                    }
                });
                hasBegun.await();
                var failure = new CompletableFuture<Throwable>();
                Thread waiting = Thread.startVirtualThread(() -> {
                    try {
                        if (isLoad) {
                            cache.get(1L, _ -> new byte[1]);
                        } else {
                            cache.put(1L, new byte[1]);
                        }
                        failure.complete(null);
                    } catch (Throwable error) {
                        failure.complete(Thread.currentThread().isInterrupted() ? error : null);
                    }
                });
                VirtualThreadsTest.await(() -> waiting.getState() == Thread.State.WAITING);
                waiting.interrupt();
                assertThat(failure.get(LONG.toSeconds(), TimeUnit.SECONDS)).isInstanceOf(CompletionException.class).hasCauseInstanceOf(InterruptedException.class);
                release.countDown();
                owner.join();
                assertThat(cache.getIfPresent(1L)).hasSize(9);
            }
        }
    }

    private static byte[] stalled(CountDownLatch hasBegun, CountDownLatch release) {
        hasBegun.countDown();
        try {
            release.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
        return new byte[9];
    }

    /// An executor that never runs its tasks does not hold up threads that need the value.
    @Test
    void aRefreshThatNeverBeginsIsNotWaitedFor() {
        try (var cache = HugeCacheTest.small().loader(_ -> new byte[7]).executor(_ -> {}).build()) {
            var refresh = cache.refresh(1L);
            assertThat(cache.get(1L)).hasSize(7);
            assertThat(refresh).isCompletedWithValueMatching(value -> value.length == 7);
        }
    }
}
