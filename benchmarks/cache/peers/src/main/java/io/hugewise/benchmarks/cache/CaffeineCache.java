package io.hugewise.benchmarks.cache;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.time.Duration;

/// Caffeine: objects on the heap, returned without a copy.
final class CaffeineCache implements Cached {
    private final Cache<Key, byte[]> cache;

    CaffeineCache(int entries, long bytes) {
        cache = Caffeine.newBuilder()
                .initialCapacity(entries)
                .maximumWeight(bytes)
                .weigher((Key key, byte[] value) -> Key.BYTES + value.length)
                .expireAfterWrite(Duration.ofSeconds(Caches.TTL_SECONDS))
                .recordStats()
                .build();
    }

    @Override
    public byte[] get(Key key) {
        return cache.getIfPresent(key);
    }

    @Override
    public void put(Key key, byte[] value) {
        cache.put(key, value);
    }
}
