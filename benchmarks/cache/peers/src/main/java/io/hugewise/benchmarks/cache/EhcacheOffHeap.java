package io.hugewise.benchmarks.cache;

import java.nio.ByteBuffer;
import java.time.Duration;
import org.ehcache.Cache;
import org.ehcache.CacheManager;
import org.ehcache.config.builders.CacheConfigurationBuilder;
import org.ehcache.config.builders.CacheManagerBuilder;
import org.ehcache.config.builders.ExpiryPolicyBuilder;
import org.ehcache.config.builders.ResourcePoolsBuilder;
import org.ehcache.config.units.MemoryUnit;
import org.ehcache.core.internal.statistics.DefaultStatisticsService;
import org.ehcache.spi.serialization.Serializer;

/// Ehcache with its off-heap tier alone.
final class EhcacheOffHeap implements Cached {
    private final Cache<Key, byte[]> cache;

    EhcacheOffHeap(long bytes) {
        var configuration = CacheConfigurationBuilder
                .newCacheConfigurationBuilder(Key.class, byte[].class, ResourcePoolsBuilder.newResourcePoolsBuilder().offheap(bytes >> 20, MemoryUnit.MB))
                .withExpiry(ExpiryPolicyBuilder.timeToLiveExpiration(Duration.ofSeconds(Caches.TTL_SECONDS)))
                .withKeySerializer(new KeySerializer())
                .withValueSerializer(new ValueSerializer());
        CacheManager manager = CacheManagerBuilder.newCacheManagerBuilder().using(new DefaultStatisticsService()).withCache("benchmark", configuration).build(true);
        cache = manager.getCache("benchmark", Key.class, byte[].class);
    }

    @Override
    public byte[] get(Key key) {
        return cache.get(key);
    }

    @Override
    public void put(Key key, byte[] value) {
        cache.put(key, value);
    }

    private static final class KeySerializer implements Serializer<Key> {
        @Override
        public ByteBuffer serialize(Key key) {
            return ByteBuffer.allocate(Key.BYTES).putLong(key.number()).putLong(key.hash()).flip();
        }

        @Override
        public Key read(ByteBuffer from) {
            return new Key(from.getLong(), from.getLong());
        }

        @Override
        public boolean equals(Key key, ByteBuffer other) {
            return other.remaining() == Key.BYTES && other.getLong() == key.number() && other.getLong() == key.hash();
        }
    }

    private static final class ValueSerializer implements Serializer<byte[]> {
        @Override
        public ByteBuffer serialize(byte[] value) {
            return ByteBuffer.wrap(value);
        }

        @Override
        public byte[] read(ByteBuffer from) {
            byte[] value = new byte[from.remaining()];
            from.get(value);
            return value;
        }

        @Override
        public boolean equals(byte[] value, ByteBuffer other) {
            return ByteBuffer.wrap(value).equals(other);
        }
    }
}
