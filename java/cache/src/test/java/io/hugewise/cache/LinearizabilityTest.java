package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.cache.History.Call;
import io.hugewise.memory.Backing;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/// Threads that use the same keys agree on an order of their calls, for each key.
@Timeout(value = 3600, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class LinearizabilityTest {
    /// Rounds of histories for each kind of cache; a sixth with evictions.
    private static final int ROUNDS = Integer.getInteger("hugewise.histories", 12);
    private static final int THREADS = 4;
    private static final int KEYS = 12;
    private static final int CALLS = 20;
    private static final long LONG_SECONDS = 120;

    enum Kind {
        PLAIN, HEAP_TIER, WRITE_THROUGH, WRITE_BEHIND, EVICTING, EVICTING_HEAP_TIER, EVICTING_WRITE_BEHIND, EXPIRING, EXPIRING_HEAP_TIER;

        boolean isEvicting() {
            return name().startsWith("EVICTING");
        }

        boolean isExpiring() {
            return name().startsWith("EXPIRING");
        }
    }

    private final AtomicInteger values = new AtomicInteger();
    private final AtomicLong now = new AtomicLong();

    private HugeCache<Integer, Integer> cache(Kind kind) {
        var builder = HugeCache.builder(Serializers.ints(), Serializers.ints()).maximumBytes(4 << 20).memory(options -> options.only(Backing.base()));
        if (kind.name().endsWith("HEAP_TIER")) {
            builder.heapEntries(64);
        }
        if (kind == Kind.WRITE_THROUGH) {
            builder.writeThrough(_ -> {});
        }
        if (kind.name().endsWith("WRITE_BEHIND")) {
            builder.writeBack(WriteBack.<Integer, Integer>to(_ -> {}).window(Duration.ofMillis(100)));
        }
        if (kind.isExpiring()) {
            builder.expireAfterWrite(Duration.ofSeconds(1)).ticker(now::get);
        }
        return builder.build();
    }

    @ParameterizedTest
    @EnumSource(Kind.class)
    void callsHaveAnOrder(Kind kind) throws Exception {
        try (var cache = cache(kind); ExecutorService threads = Executors.newCachedThreadPool(Thread.ofPlatform().daemon().factory())) {
            for (int round = 0; round < (kind.isEvicting() ? ROUNDS / 6 : ROUNDS); round++) {
                int first = round * KEYS;
                List<List<Call>> histories = round(kind, cache, threads, first, new SplittableRandom(round));
                for (List<Call> calls : histories) {
                    assertThat(new History(calls, kind.isEvicting() || kind.isExpiring()).hasOrder()).as("%s", calls).isTrue();
                }
            }
        }
    }

    private List<List<Call>> round(Kind kind, HugeCache<Integer, Integer> cache, ExecutorService threads, int first, SplittableRandom random) throws Exception {
        var barrier = new CyclicBarrier(THREADS);
        List<List<List<Call>>> all = new ArrayList<>();
        List<Future<?>> tasks = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            SplittableRandom own = random.split();
            List<List<Call>> calls = new ArrayList<>();
            for (int key = 0; key < KEYS; key++) {
                calls.add(new ArrayList<>());
            }
            all.add(calls);
            tasks.add(threads.submit(() -> {
                barrier.await();
                for (int call = 0; call < CALLS; call++) {
                    int key = own.nextInt(KEYS);
                    // A history has at most 32 calls.
                    if (calls.get(key).size() < 32 / THREADS) {
                        calls.get(key).add(call(cache, first + key, own));
                    }
                    disturb(kind, cache, own);
                }
                return null;
            }));
        }
        for (Future<?> task : tasks) {
            task.get(LONG_SECONDS, TimeUnit.SECONDS);
        }
        List<List<Call>> histories = new ArrayList<>();
        for (int key = 0; key < KEYS; key++) {
            List<Call> history = new ArrayList<>();
            for (List<List<Call>> calls : all) {
                history.addAll(calls.get(key));
            }
            histories.add(history);
        }
        return histories;
    }

    /// Makes entries be evicted or expire.
    private void disturb(Kind kind, HugeCache<Integer, Integer> cache, SplittableRandom random) {
        if (kind.isEvicting()) {
            for (int i = 0; i < 400; i++) {
                cache.put(-1 - random.nextInt(1_000_000), i);
            }
        }
        if (kind.isExpiring() && random.nextInt(4) == 0) {
            now.addAndGet(Duration.ofMillis(400).toNanos());
        }
    }

    private static int number(Integer value) {
        return value == null ? 0 : value;
    }

    private Call call(HugeCache<Integer, Integer> cache, int key, SplittableRandom random) {
        History.Kind kind = History.Kind.values()[random.nextInt(History.Kind.values().length)];
        int value = values.incrementAndGet();
        int other = value;
        if (kind == History.Kind.REPLACE_VALUE || kind == History.Kind.REMOVE_VALUE) {
            // One that is there, probably.
            value = Math.max(1, number(cache.asMap().get(key)));
        }
        int of = value;
        long begin = System.nanoTime();
        int result = switch (kind) {
            case GET -> number(random.nextBoolean() ? cache.getIfPresent(key) : cache.asMap().get(key));
            case PUT -> {
                cache.put(key, of);
                yield 0;
            }
            case PUT_IF_ABSENT -> number(cache.putIfAbsent(key, of));
            case REPLACE -> number(cache.asMap().replace(key, of));
            case REPLACE_VALUE -> cache.asMap().replace(key, of, other) ? 1 : 0;
            case REMOVE -> number(cache.asMap().remove(key));
            case REMOVE_VALUE -> cache.asMap().remove(key, of) ? 1 : 0;
            case INVALIDATE -> {
                cache.invalidate(key);
                yield 0;
            }
            case COMPUTE -> {
                int[] old = new int[1];
                cache.asMap().compute(key, (_, present) -> {
                    old[0] = number(present);
                    Thread.yield();
                    return of;
                });
                yield old[0];
            }
            case LOAD -> number(cache.get(key, _ -> {
                Thread.yield();
                return of;
            }));
        };
        return new Call(kind, value, other, result, begin, System.nanoTime());
    }

    @Test
    void theCheckFindsCallsWithoutAnOrder() {
        var put = new Call(History.Kind.PUT, 1, 1, 0, 0, 10);
        assertThat(new History(List.of(put, new Call(History.Kind.GET, 9, 9, 0, 5, 15)), false).hasOrder()).isTrue();
        assertThat(new History(List.of(put, new Call(History.Kind.GET, 9, 9, 0, 11, 15)), false).hasOrder()).isFalse();
        assertThat(new History(List.of(put, new Call(History.Kind.GET, 9, 9, 0, 11, 15)), true).hasOrder()).isTrue();
        // Both add a value.
        assertThat(new History(List.of(new Call(History.Kind.PUT_IF_ABSENT, 1, 1, 0, 0, 10), new Call(History.Kind.PUT_IF_ABSENT, 2, 2, 0, 0, 10)), false).hasOrder())
                .isFalse();
        // The value of a load that began before a removal, after it.
        assertThat(new History(List.of(new Call(History.Kind.LOAD, 1, 1, 1, 0, 10), new Call(History.Kind.INVALIDATE, 2, 2, 0, 11, 12),
                new Call(History.Kind.GET, 3, 3, 1, 13, 14)), true).hasOrder()).isFalse();
    }
}
