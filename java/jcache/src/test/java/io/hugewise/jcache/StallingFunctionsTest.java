package io.hugewise.jcache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import javax.cache.Cache;
import javax.cache.CacheException;
import javax.cache.CacheManager;
import javax.cache.integration.CacheLoader;
import javax.cache.processor.EntryProcessorException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/// Loaders and processors that do not return, or use the cache again.
@Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StallingFunctionsTest {
    private static final Duration LONG = Duration.ofSeconds(60);

    private final CacheManager manager = new HugeCachingProvider().getCacheManager();
    private final CountDownLatch begun = new CountDownLatch(1);
    private final CountDownLatch end = new CountDownLatch(1);

    @AfterEach
    void close() {
        end.countDown();
        manager.close();
    }

    private Cache<Integer, String> cache() {
        return manager.createCache("waits", new HugeConfiguration<Integer, String>());
    }

    private final class Loader implements CacheLoader<Integer, String> {
        @Override
        public String load(Integer key) {
            if (key < 0) {
                stall();
            }
            return "loaded";
        }

        @Override
        public Map<Integer, String> loadAll(Iterable<? extends Integer> keys) {
            return Map.of();
        }
    }

    private void stall() {
        begun.countDown();
        try {
            end.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void await(CyclicBarrier barrier) {
        try {
            barrier.await();
        } catch (Exception error) {
            throw new IllegalArgumentException(error);
        }
    }

    private static void join(List<Thread> threads) throws InterruptedException {
        for (Thread thread : threads) {
            assertThat(thread.join(LONG)).isTrue();
        }
    }

    @Test
    void aLoaderOfOneKeyHoldsUpNoOther() throws Exception {
        var configuration = new HugeConfiguration<Integer, String>();
        configuration.setReadThrough(true).setCacheLoaderFactory(Loader::new);
        Cache<Integer, String> cache = manager.createCache("loader", configuration);
        cache.put(-1, "present");
        cache.remove(-1);
        Thread stalled = Thread.startVirtualThread(() -> cache.get(-1));
        begun.await();
        CompletableFuture.runAsync(() -> {
            for (int key = 0; key < 2000; key++) {
                cache.put(key, "value");
                assertThat(cache.get(key)).isEqualTo("value");
                assertThat(cache.get(10_000 + key)).isEqualTo("loaded");
            }
            cache.putAll(Map.of(1, "a", 2, "b"));
            cache.removeAll(Set.of(1, 2));
        }, task -> Thread.ofPlatform().daemon().start(task)).get(LONG.toSeconds(), TimeUnit.SECONDS);
        assertThat(stalled.isAlive()).isTrue();
        end.countDown();
        join(List.of(stalled));
    }

    @Test
    void aProcessorHoldsUpNoReadOfItsKey() throws Exception {
        Cache<Integer, String> cache = cache();
        cache.put(1, "before");
        Thread stalled = Thread.startVirtualThread(() -> cache.invoke(1, (entry, _) -> {
            entry.setValue("after");
            stall();
            return null;
        }));
        begun.await();
        assertThat(CompletableFuture.supplyAsync(() -> cache.get(1)).get(LONG.toSeconds(), TimeUnit.SECONDS)).isEqualTo("before");
        end.countDown();
        join(List.of(stalled));
        assertThat(cache.get(1)).isEqualTo("after");
    }

    /// As a cached method does that calls another one.
    @Test
    void processorsThatReadEachOthersKeysEnd() throws Exception {
        Cache<Integer, String> cache = cache();
        var barrier = new CyclicBarrier(2);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            int own = i;
            threads.add(Thread.startVirtualThread(() -> cache.invoke(own, (entry, _) -> {
                await(barrier);
                cache.get(1 - own);
                entry.setValue("done");
                return null;
            })));
        }
        join(threads);
        assertThat(cache.get(0)).isEqualTo("done").isEqualTo(cache.get(1));
    }

    @Test
    void processorsThatWouldWaitForEachOtherThrow() throws Exception {
        Cache<Integer, String> cache = cache();
        var barrier = new CyclicBarrier(3);
        var refused = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            int own = i;
            threads.add(Thread.startVirtualThread(() -> {
                try {
                    cache.invoke(own, (entry, _) -> {
                        await(barrier);
                        cache.invoke((own + 1) % 3, (other, _) -> {
                            other.setValue("inner");
                            return null;
                        });
                        return null;
                    });
                } catch (EntryProcessorException error) {
                    assertThat(error).hasRootCauseInstanceOf(IllegalStateException.class);
                    refused.incrementAndGet();
                }
            }));
        }
        join(threads);
        assertThat(refused.get()).isPositive();
        cache.put(0, "usable");
        assertThat(cache.get(0)).isEqualTo("usable");
    }

    @Test
    void aProcessorThatChangesItsOwnKeyOtherwiseThrows() {
        Cache<Integer, String> cache = cache();
        assertThatThrownBy(() -> cache.invoke(1, (_, _) -> {
            cache.put(1, "inner");
            return null;
        })).isInstanceOf(EntryProcessorException.class).hasRootCauseInstanceOf(IllegalStateException.class);
        cache.put(1, "usable");
        assertThat(cache.get(1)).isEqualTo("usable");
    }

    @Test
    void callsOfManyKeysInOppositeOrdersEnd() throws Exception {
        Cache<Integer, String> cache = cache();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            boolean isReverse = i % 2 == 0;
            threads.add(Thread.startVirtualThread(() -> {
                for (int n = 0; n < 200; n++) {
                    Map<Integer, String> map = new LinkedHashMap<>();
                    for (int key = 0; key < 20; key++) {
                        map.put(isReverse ? 20 - key : key, "value");
                    }
                    cache.putAll(map);
                    cache.removeAll(map.keySet());
                }
            }));
        }
        join(threads);
    }

    @Test
    void aWaitForTheSameKeyEndsWithAnInterruption() throws Exception {
        Cache<Integer, String> cache = cache();
        Thread stalled = Thread.startVirtualThread(() -> cache.invoke(1, (_, _) -> {
            stall();
            return null;
        }));
        begun.await();
        var failure = new CompletableFuture<Throwable>();
        Thread waiting = Thread.startVirtualThread(() -> {
            try {
                cache.put(1, "value");
                failure.complete(null);
            } catch (Throwable error) {
                failure.complete(error);
            }
        });
        waiting.interrupt();
        assertThat(failure.get(LONG.toSeconds(), TimeUnit.SECONDS)).isInstanceOf(CacheException.class).hasRootCauseInstanceOf(InterruptedException.class);
        end.countDown();
        join(List.of(stalled));
    }
}
