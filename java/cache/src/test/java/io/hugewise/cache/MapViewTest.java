package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.random.RandomGenerator;
import org.junit.jupiter.api.Test;

/// The map's contract, with [ConcurrentHashMap] as the model.
class MapViewTest {
    private static HugeCache<String, String> cache() {
        return HugeCache.builder(Serializers.strings(), Serializers.strings()).maximumBytes(8 << 20)
                .memory(options -> options.only(io.hugewise.memory.Backing.base())).build();
    }

    private static String random(RandomGenerator random, int count) {
        return Integer.toString(random.nextInt(count));
    }

    @Test
    void behavesAsAConcurrentHashMap() {
        var random = RandomGenerator.of("L64X128MixRandom");
        ConcurrentMap<String, String> model = new ConcurrentHashMap<>();
        try (var cache = cache()) {
            ConcurrentMap<String, String> map = cache.asMap();
            for (int i = 0; i < 200_000; i++) {
                String key = random(random, 50);
                String value = random(random, 3);
                String other = random(random, 3);
                List<Object> results = new ArrayList<>();
                int operation = random.nextInt(16);
                for (ConcurrentMap<String, String> of : List.of(model, map)) {
                    Object result = switch (operation) {
                        case 0 -> of.put(key, value);
                        case 1 -> of.putIfAbsent(key, value);
                        case 2 -> of.remove(key);
                        case 3 -> of.remove(key, value);
                        case 4 -> of.replace(key, value);
                        case 5 -> of.replace(key, value, other);
                        case 6 -> of.compute(key, (k, old) -> old == null ? value : old.equals(value) ? null : k + old);
                        case 7 -> of.computeIfAbsent(key, _ -> value.equals("0") ? null : value);
                        case 8 -> of.computeIfPresent(key, (_, old) -> old.equals(value) ? null : other);
                        case 9 -> of.merge(key, value, (old, added) -> old.equals(added) ? null : old.length() > 5 ? added : old + added);
                        case 10 -> of.getOrDefault(key, "none");
                        case 11 -> of.containsKey(key);
                        case 12 -> of.keySet().remove(key);
                        case 13 -> of.entrySet().remove(Map.entry(key, value));
                        case 14 -> of.entrySet().contains(Map.entry(key, value));
                        default -> of.get(key);
                    };
                    results.add(String.valueOf(result));
                }
                assertThat(results.get(1)).as("operation %d of %s", operation, key).isEqualTo(results.get(0));
            }
            assertThat(map).isEqualTo(model).hasSameHashCodeAs(model);
            assertThat(map.values()).containsExactlyInAnyOrderElementsOf(model.values());
            map.replaceAll((key, value) -> key + value);
            model.replaceAll((key, value) -> key + value);
            assertThat(map).isEqualTo(model);
            map.entrySet().forEach(entry -> entry.setValue("set"));
            assertThat(map.values()).containsOnly("set");
            map.keySet().removeIf(key -> key.length() == 1);
            assertThat(map.keySet()).isNotEmpty().allMatch(key -> key.length() == 2);
            map.clear();
            assertThat(map).isEmpty();
        }
    }

    @Test
    void nullIsRefused() {
        try (var cache = cache()) {
            ConcurrentMap<String, String> map = cache.asMap();
            assertThatThrownBy(() -> map.put(null, "")).isInstanceOf(NullPointerException.class);
            assertThatThrownBy(() -> map.put("", null)).isInstanceOf(NullPointerException.class);
            assertThatThrownBy(() -> map.get(null)).isInstanceOf(NullPointerException.class);
            assertThatThrownBy(() -> map.merge("", null, (_, _) -> "")).isInstanceOf(NullPointerException.class);
            assertThatThrownBy(() -> map.compute(null, (_, _) -> "")).isInstanceOf(NullPointerException.class);
            assertThat(map).isEmpty();
        }
    }

    @Test
    void aFunctionThatFailsChangesNothing() {
        try (var cache = cache()) {
            cache.put("a", "1");
            assertThatThrownBy(() -> cache.asMap().compute("a", (_, _) -> {
                throw new IllegalArgumentException("no");
            })).hasMessage("no");
            assertThat(cache.asMap().merge("a", "2", String::concat)).isEqualTo("12");
        }
    }

    @Test
    void aFunctionIsCalledOnceAndNoWriteIsLost() {
        int threads = 4;
        int rounds = 5_000;
        var calls = new AtomicInteger();
        try (var cache = HugeCache.builder(Serializers.strings(), Serializers.longs()).maximumBytes(8 << 20)
                .memory(options -> options.only(io.hugewise.memory.Backing.base())).build()) {
            List<CompletableFuture<Void>> running = new ArrayList<>();
            for (int thread = 0; thread < threads; thread++) {
                running.add(CompletableFuture.runAsync(() -> {
                    for (int i = 0; i < rounds; i++) {
                        cache.asMap().merge("sum", 1L, (old, one) -> {
                            calls.incrementAndGet();
                            return old + one;
                        });
                        cache.asMap().compute("key " + i % 7, (_, old) -> old == null ? 1 : old + 1);
                    }
                }, task -> Thread.ofPlatform().start(task)));
            }
            running.forEach(CompletableFuture::join);
            assertThat(cache.getIfPresent("sum")).isEqualTo(threads * rounds);
            assertThat(calls).hasValue(threads * rounds - 1);
            assertThat(cache.asMap().values().stream().mapToLong(Long::longValue).sum()).isEqualTo(2L * threads * rounds);
        }
    }

    @Test
    void aPutWaitsForAFunctionOfItsKeyAndOthersDoNot() throws Exception {
        var begun = new CountDownLatch(1);
        var end = new CountDownLatch(1);
        try (var cache = cache()) {
            cache.put("a", "1");
            var computed = CompletableFuture.supplyAsync(() -> cache.asMap().compute("a", (_, old) -> {
                begun.countDown();
                HugeCacheTest.await(end);
                return old + "2";
            }), Thread::startVirtualThread);
            begun.await();
            cache.put("b", "3");
            Thread waiting = Thread.ofVirtual().start(() -> cache.put("a", "4"));
            while (waiting.getState() != Thread.State.WAITING) {
                Thread.onSpinWait();
            }
            assertThat(cache.getIfPresent("a")).isEqualTo("1");
            end.countDown();
            assertThat(computed.get()).isEqualTo("12");
            waiting.join();
            assertThat(cache.getIfPresent("a")).isEqualTo("4");
        }
    }

    @Test
    void aFunctionOfTheSameKeyInsideAFunctionIsRefused() {
        try (var cache = cache()) {
            assertThatThrownBy(() -> cache.asMap().compute("a", (key, _) -> cache.asMap().compute(key, (_, _) -> "2")))
                    .isInstanceOf(IllegalStateException.class);
            Map<String, String> expected = new HashMap<>();
            assertThat(cache.asMap()).isEqualTo(expected);
        }
    }
}
