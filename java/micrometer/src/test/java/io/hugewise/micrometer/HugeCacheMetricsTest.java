package io.hugewise.micrometer;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.cache.HugeCache;
import io.hugewise.cache.RefusedChange;
import io.hugewise.cache.Serializers;
import io.hugewise.cache.WriteBack;
import io.hugewise.memory.Backing;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;

class HugeCacheMetricsTest {
    private final SimpleMeterRegistry registry = new SimpleMeterRegistry();

    private double count(String name, String... tags) {
        return registry.get(name).tags(tags).functionCounter().count();
    }

    private double value(String name, String... tags) {
        return registry.get(name).tags(tags).gauge().value();
    }

    @Test
    void metersAreReadFromTheCache() {
        var cache = HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(8 << 20)
                .memory(options -> options.only(Backing.base())).build();
        new HugeCacheMetrics<>(cache, "rows", Tags.of("shard", "1")).bindTo(registry);
        cache.put(1L, new byte[100]);
        cache.get(2L, _ -> new byte[300]);
        cache.get(3L, _ -> null);
        cache.getIfPresent(1L);
        String[] tags = {"cache", "rows", "shard", "1"};
        assertThat(value("cache.size", tags)).isEqualTo(2);
        assertThat(count("cache.gets", "result", "hit")).isEqualTo(1);
        assertThat(count("cache.gets", "result", "miss")).isEqualTo(2);
        assertThat(count("cache.puts", tags)).isEqualTo(2);
        assertThat(count("cache.evictions", tags)).isZero();
        assertThat(count("cache.load", "result", "success")).isEqualTo(1);
        assertThat(count("cache.load", "result", "failure")).isEqualTo(1);
        assertThat(registry.get("cache.load.duration").timeGauge().value()).isPositive();
        assertThat(value("hugewise.cache.limit", tags)).isEqualTo(8 << 20);
        cache.cleanUp();
        assertThat(value("hugewise.cache.used", tags)).isEqualTo(cache.usedBytes()).isPositive();
        assertThat(count("hugewise.cache.hit.bytes", tags)).isEqualTo(100);
        assertThat(value("hugewise.cache.byte.hit.ratio", tags)).isEqualTo(0.25);
        assertThat(value("hugewise.cache.resident", "page.size", "base")).isPositive();
        for (long key = 0; key < 20_000; key++) {
            cache.put(key, new byte[1000]);
        }
        assertThat(count("cache.evictions", tags)).isPositive();
        assertThat(count("cache.eviction.weight", tags)).isGreaterThan(1000 * count("cache.evictions", tags));
        cache.close();
        assertThat(value("hugewise.cache.resident", "page.size", "base")).isNaN();
    }

    @Test
    void failuresInTheBackgroundAreMetered() throws Exception {
        var isDown = new AtomicBoolean(true);
        var back = WriteBack.<Long, byte[]>to(changes -> {
            if (isDown.get() && changes.stream().anyMatch(change -> change.key() == 1)) {
                throw new IllegalStateException("value too long");
            }
        }).window(Duration.ofMillis(100)).refused(2, (_, _, _) -> RefusedChange.Decision.KEEP);
        try (var cache = HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(8 << 20)
                .memory(options -> options.only(Backing.base())).writeBack(back).executor(Runnable::run).removalListener((_, _, _) -> {
                    throw new IllegalStateException("a listener that fails");
                }).build()) {
            new HugeCacheMetrics<>(cache, "rows", Tags.empty()).bindTo(registry);
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            for (long key = 1; count("hugewise.cache.refused") == 0 || value("hugewise.cache.unwritten") != 1; key++) {
                assertThat(System.nanoTime()).isLessThan(end);
                if (count("hugewise.cache.refused") == 0) {
                    cache.put(key, new byte[1]);
                }
                Thread.sleep(1);
            }
            assertThat(value("hugewise.cache.kept")).isEqualTo(1);
            cache.invalidate(2L);
            assertThat(count("hugewise.cache.failures", "work", "listener")).isPositive();
            for (String work : new String[] {"eviction", "writer", "refresh"}) {
                assertThat(count("hugewise.cache.failures", "work", work)).isZero();
            }
            isDown.set(false);
        }
    }
}
