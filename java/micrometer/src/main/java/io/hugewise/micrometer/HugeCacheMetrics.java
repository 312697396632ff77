package io.hugewise.micrometer;

import io.hugewise.cache.CacheHealth;
import io.hugewise.cache.HugeCache;
import io.hugewise.memory.Coverage;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.TimeGauge;
import io.micrometer.core.instrument.binder.cache.CacheMeterBinder;
import java.util.concurrent.TimeUnit;
import java.util.function.ToDoubleFunction;
import org.jspecify.annotations.Nullable;

/// Metrics of a cache: those that Micrometer has for each cache (`cache.size`, `cache.gets`, `cache.puts`,
/// `cache.evictions`), and
///
/// | Name | Meaning |
/// |---|---|
/// | `cache.eviction.weight` | bytes of evicted entries |
/// | `cache.load` | loads by `result` (`success`, `failure`) |
/// | `cache.load.duration` | time that loads took |
/// | `hugewise.cache.limit`, `hugewise.cache.used` | bytes outside of the heap |
/// | `hugewise.cache.hit.bytes` | bytes of values that reads found |
/// | `hugewise.cache.byte.hit.ratio` | their share of these and the loaded bytes, from 0 to 1 |
/// | `hugewise.cache.rejections` | entries that found no memory |
/// | `hugewise.cache.failures` | what has failed in the background, by `work` (`eviction`, `writer`, `listener`, `refresh`) |
/// | `hugewise.cache.refused` | changes that the store has refused while it accepted others |
/// | `hugewise.cache.kept` | of these, those that are still to be written |
/// | `hugewise.cache.unwritten` | changes that the store does not have yet |
/// | `hugewise.cache.resident` | resident bytes by `page.size` (`base`, `huge`), read from the kernel at each query; NaN if unknown |
///
/// The registry does not keep the cache from being collected. This class needs `hugewise-cache`.
///
/// ```java
/// new HugeCacheMetrics<>(cache, "pages", Tags.empty()).bindTo(registry);
/// ```
///
/// @param <K> type of keys
/// @param <V> type of values
@SuppressWarnings("exports") // who has a cache has its module
public final class HugeCacheMetrics<K, V> extends CacheMeterBinder<HugeCache<K, V>> {
    /// Metrics of a cache.
    ///
    /// @param cache the cache
    /// @param name value of the tag `cache`
    /// @param tags further tags
    public HugeCacheMetrics(HugeCache<K, V> cache, String name, Iterable<Tag> tags) {
        super(cache, name, tags);
    }

    private long read(ToDoubleFunction<HugeCache<K, V>> value) {
        HugeCache<K, V> cache = getCache();
        return cache == null ? 0 : (long) value.applyAsDouble(cache);
    }

    @Override
    protected Long size() {
        return read(HugeCache::estimatedSize);
    }

    @Override
    protected long hitCount() {
        return read(cache -> cache.stats().hits());
    }

    @Override
    protected Long missCount() {
        return read(cache -> cache.stats().misses());
    }

    @Override
    protected Long evictionCount() {
        return read(cache -> cache.stats().evictions());
    }

    @Override
    protected long putCount() {
        return read(cache -> cache.stats().puts());
    }

    @Override
    protected void bindImplementationSpecificMetrics(MeterRegistry registry) {
        HugeCache<K, V> cache = getCache();
        if (cache != null) {
            bind(cache, registry);
        }
    }

    private void bind(HugeCache<K, V> cache, MeterRegistry registry) {
        counter(cache, registry, "cache.eviction.weight", "bytes", "Bytes of evicted entries", of -> of.stats().evictedBytes());
        load(cache, registry, "success", of -> of.stats().loads());
        load(cache, registry, "failure", of -> of.stats().failedLoads());
        TimeGauge.builder("cache.load.duration", cache, TimeUnit.NANOSECONDS, of -> of.stats().loadNanos())
                .tags(getTagsWithCacheName()).description("Time that loads took").register(registry);
        gauge(cache, registry, "hugewise.cache.limit", "bytes", "Limit of the memory", HugeCache::maximumBytes);
        gauge(cache, registry, "hugewise.cache.used", "bytes", "Memory in use", HugeCache::usedBytes);
        counter(cache, registry, "hugewise.cache.hit.bytes", "bytes", "Bytes of values that reads found", of -> of.stats().hitBytes());
        gauge(cache, registry, "hugewise.cache.byte.hit.ratio", null, "Share of the bytes that reads found", of -> of.stats().byteHitRatio());
        counter(cache, registry, "hugewise.cache.rejections", null, "Entries that found no memory", of -> of.stats().rejections());
        failures(cache, registry, "eviction", CacheHealth::backgroundFailures);
        failures(cache, registry, "writer", CacheHealth::writerFailures);
        failures(cache, registry, "listener", CacheHealth::listenerFailures);
        failures(cache, registry, "refresh", CacheHealth::refreshFailures);
        counter(cache, registry, "hugewise.cache.refused", null, "Changes that the store has refused", of -> of.health().refusedChanges());
        gauge(cache, registry, "hugewise.cache.kept", null, "Refused changes that are still to be written", of -> of.health().keptChanges());
        gauge(cache, registry, "hugewise.cache.unwritten", null, "Changes that the store does not have yet", of -> of.health().unwrittenChanges());
        resident(cache, registry, "huge", Coverage.Known::huge);
        resident(cache, registry, "base", known -> known.resident() - known.huge());
    }

    private void load(HugeCache<K, V> cache, MeterRegistry registry, String result, ToDoubleFunction<HugeCache<K, V>> value) {
        FunctionCounter.builder("cache.load", cache, value)
                .tags(getTagsWithCacheName()).tag("result", result).description("Loads").register(registry);
    }

    private void failures(HugeCache<K, V> cache, MeterRegistry registry, String work, ToDoubleFunction<CacheHealth> count) {
        FunctionCounter.builder("hugewise.cache.failures", cache, of -> count.applyAsDouble(of.health()))
                .tags(getTagsWithCacheName()).tag("work", work).description("Failures in the background").register(registry);
    }

    private void counter(HugeCache<K, V> cache, MeterRegistry registry, String name, @Nullable String unit, String description, ToDoubleFunction<HugeCache<K, V>> value) {
        FunctionCounter.builder(name, cache, value)
                .tags(getTagsWithCacheName()).baseUnit(unit).description(description).register(registry);
    }

    private void gauge(HugeCache<K, V> cache, MeterRegistry registry, String name, @Nullable String unit, String description, ToDoubleFunction<HugeCache<K, V>> value) {
        Gauge.builder(name, cache, value)
                .tags(getTagsWithCacheName()).baseUnit(unit).description(description).register(registry);
    }

    private void resident(HugeCache<K, V> cache, MeterRegistry registry, String pageSize, ToDoubleFunction<Coverage.Known> bytes) {
        Gauge.builder("hugewise.cache.resident", cache, of -> bytes(of, bytes))
                .tags(getTagsWithCacheName()).tag("page.size", pageSize).baseUnit("bytes")
                .description("Resident bytes, read from the kernel").register(registry);
    }

    private static double bytes(HugeCache<?, ?> cache, ToDoubleFunction<Coverage.Known> bytes) {
        try {
            return cache.coverage() instanceof Coverage.Known known ? bytes.applyAsDouble(known) : Double.NaN;
        } catch (IllegalStateException _) {
            // It is closed.
            return Double.NaN;
        }
    }
}
