package io.hugewise.micrometer;

import io.hugewise.cache.HugeCache;
import io.hugewise.cache.Serializers;
import io.hugewise.memory.Backing;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.binder.cache.CacheMeterBinder;
import io.micrometer.core.instrument.binder.cache.CacheMeterBinderCompatibilityKit;
import org.jspecify.annotations.Nullable;

/// Micrometer's own tests of the metrics of a cache; among others, a cache that is not referenced any more is collected.
class HugeCacheMetricsCompatibilityTest extends CacheMeterBinderCompatibilityKit<HugeCache<String, String>> {
    @Override
    public HugeCache<String, String> createCache() {
        return HugeCache.builder(Serializers.strings(), Serializers.strings()).maximumBytes(4 << 20)
                .memory(options -> options.only(Backing.base())).build();
    }

    @Override
    public CacheMeterBinder<HugeCache<String, String>> binder() {
        return new HugeCacheMetrics<>(cache, "mycache", Tags.empty());
    }

    @Override
    public void put(String key, String value) {
        cache.put(key, value);
    }

    @Override
    public @Nullable String get(String key) {
        return cache.getIfPresent(key);
    }
}
