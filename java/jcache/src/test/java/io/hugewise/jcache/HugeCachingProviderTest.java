package io.hugewise.jcache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.hugewise.cache.HugeCache;
import java.io.Serializable;
import java.net.URI;
import java.util.List;
import java.util.Properties;
import javax.cache.Cache;
import javax.cache.CacheException;
import javax.cache.CacheManager;
import javax.cache.Caching;
import javax.cache.configuration.MutableConfiguration;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/// What the compatibility kit does not test.
@Tag("pools")
class HugeCachingProviderTest {
    private static final int MIB = 1 << 20;

    private record Page(String path, List<String> words) implements Serializable {}

    private static CacheManager manager(Properties properties) {
        return Caching.getCachingProvider().getCacheManager(URI.create("hugewise:test"), null, properties);
    }

    @Test
    void limitsAreThoseOfTheConfigurationOrTheManager() {
        var properties = new Properties();
        properties.setProperty(HugeCachingProvider.MAXIMUM_BYTES, "8388608");
        properties.setProperty(HugeCachingProvider.MAXIMUM_BYTES + ".small", "4194304");
        properties.setProperty(HugeCachingProvider.MAXIMUM_BYTES + ".wrong", "4MiB");
        try (CacheManager manager = manager(properties)) {
            assertThat(limit(manager.createCache("pages", new HugeConfiguration<String, Page>().setMaximumBytes(16 * MIB)))).isEqualTo(16 * MIB);
            assertThat(limit(manager.createCache("other", new MutableConfiguration<String, Page>()))).isEqualTo(8 * MIB);
            assertThat(limit(manager.createCache("small", new MutableConfiguration<String, Page>()))).isEqualTo(4 * MIB);
            assertThatThrownBy(() -> manager.createCache("wrong", new MutableConfiguration<String, Page>()))
                    .isInstanceOf(CacheException.class).hasMessageContaining("4MiB");
        }
        try (CacheManager manager = manager(new Properties())) {
            assertThat(limit(manager.createCache("default", new MutableConfiguration<String, Page>()))).isEqualTo(64 * MIB);
        }
    }

    private static long limit(Cache<?, ?> cache) {
        return cache.unwrap(HugeCache.class).maximumBytes();
    }

    @Test
    void objectsOfAllKindsAreRead() {
        try (CacheManager manager = manager(new Properties()); Cache<Object, Object> cache = manager.createCache("objects", new MutableConfiguration<>())) {
            Object[] objects = {"text", "äöü 𝄞", "\uD800 alone", 7, 7L, 7.0, new Page("/", List.of("a", "b")), 'c'};
            for (Object object : objects) {
                cache.put(object, object);
            }
            for (Object object : objects) {
                assertThat(cache.get(object)).isEqualTo(object);
            }
            cache.put("bytes", new byte[] {1, 2});
            assertThat((byte[]) cache.get("bytes")).containsExactly(1, 2);
            assertThatThrownBy(() -> cache.put("not serializable", new Object())).isInstanceOf(CacheException.class);
        }
    }

    @Test
    void anEvictedEntryIsCounted() {
        try (CacheManager manager = manager(new Properties())) {
            Cache<Integer, byte[]> cache = manager.createCache("evicting",
                    new HugeConfiguration<Integer, byte[]>(new MutableConfiguration<Integer, byte[]>().setStatisticsEnabled(true)).setMaximumBytes(4 * MIB));
            for (int i = 0; i < 10_000; i++) {
                cache.put(i, new byte[1000]);
            }
            HugeCache<?, ?> below = cache.unwrap(HugeCache.class);
            // So that no more are evicted from now on.
            below.cleanUp();
            long evictions = ((ManagedCache<?, ?>) cache).statistics.getCacheEvictions();
            assertThat(evictions).isGreaterThan(5_000);
            int present = 0;
            for (Cache.Entry<Integer, byte[]> entry : cache) {
                present += entry.getValue().length == 1000 ? 1 : 0;
            }
            assertThat(present + evictions + below.stats().rejections()).isEqualTo(10_000);
        }
    }
}
