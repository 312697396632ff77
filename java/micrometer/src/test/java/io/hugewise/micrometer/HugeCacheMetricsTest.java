package io.hugewise.micrometer;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.cache.HugeCache;
import io.hugewise.cache.Serializers;
import io.hugewise.memory.Backing;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
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
}
