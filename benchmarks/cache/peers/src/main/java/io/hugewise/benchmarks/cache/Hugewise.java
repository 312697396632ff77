package io.hugewise.benchmarks.cache;

import io.hugewise.cache.HugeCache;
import io.hugewise.cache.Serializer;
import io.hugewise.cache.Serializers;
import io.hugewise.memory.Backing;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;

/// hugewise-cache.
final class Hugewise implements Cached {
    private final HugeCache<Key, byte[]> cache;

    Hugewise(long bytes, Backing backing) {
        cache = HugeCache.builder(new KeySerializer(), Serializers.bytes())
                .maximumBytes(bytes)
                .expireAfterWrite(Duration.ofSeconds(Caches.TTL_SECONDS))
                .memory(options -> options.only(backing).pretouch())
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

    static final class KeySerializer implements Serializer<Key> {
        @Override
        public int size(Key key) {
            return Key.BYTES;
        }

        @Override
        public void write(Key key, MemorySegment to) {
            to.set(ValueLayout.JAVA_LONG_UNALIGNED, 0, key.number());
            to.set(ValueLayout.JAVA_LONG_UNALIGNED, Long.BYTES, key.hash());
        }

        @Override
        public Key read(MemorySegment from) {
            return new Key(from.get(ValueLayout.JAVA_LONG_UNALIGNED, 0), from.get(ValueLayout.JAVA_LONG_UNALIGNED, Long.BYTES));
        }
    }
}
