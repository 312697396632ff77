package io.hugewise.jcache;

import io.hugewise.cache.HugeCache;
import io.hugewise.cache.RemovalCause;
import io.hugewise.cache.Serializers;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/// Keys and values as bytes in a cache, with times of expiry in milliseconds. The cache's own times, which are less
/// exact and later, free memory.
final class TimedEntries<K, V> implements AutoCloseable {
    private static final long LATER_MILLIS = 1000;
    private static final ValueLayout.OfLong EXPIRY = ValueLayout.JAVA_LONG_UNALIGNED;

    final HugeCache<byte[], byte[]> cache;
    private final ObjectBytes objects;

    /// @param expired is called with entries whose expiry no operation has noticed
    TimedEntries(String name, long maximumBytes, ClassLoader classes, BiConsumer<K, V> expired) {
        objects = new ObjectBytes(classes);
        cache = HugeCache.builder(Serializers.bytes(), Serializers.bytes())
                .maximumBytes(maximumBytes)
                .memory(options -> options.named("jcache " + name))
                .variableExpiry()
                .removalListener((key, value, cause) -> {
                    if (cause == RemovalCause.EXPIRED) {
                        expired.accept(key(key), value(value));
                    }
                })
                .build();
    }

    byte[] bytes(K key) {
        return objects.write(key, 0);
    }

    @SuppressWarnings("unchecked")
    K key(byte[] bytes) {
        return (K) objects.read(bytes, 0);
    }

    @SuppressWarnings("unchecked")
    V value(byte[] stored) {
        return (V) objects.read(stored, Long.BYTES);
    }

    /// A copy of a value by its bytes.
    V copy(V value) {
        return value(objects.write(value, Long.BYTES));
    }

    static long expiry(byte[] stored) {
        return MemorySegment.ofArray(stored).get(EXPIRY, 0);
    }

    byte @Nullable [] get(byte[] key) {
        return cache.getIfPresent(key);
    }

    /// Whether a key has a value that has not expired.
    boolean isPresent(byte[] key) {
        byte[] stored = cache.asMap().get(key);
        return stored != null && !Expirations.isPast(expiry(stored));
    }

    void put(byte[] key, V value, long expiry) {
        byte[] stored = objects.write(value, Long.BYTES);
        MemorySegment.ofArray(stored).set(EXPIRY, 0, expiry);
        if (expiry == Expirations.NEVER) {
            cache.put(key, stored);
        } else {
            cache.put(key, stored, Duration.ofMillis(Math.max(0, expiry - Expirations.now()) + LATER_MILLIS));
        }
    }

    /// Changes when an entry expires, if it is as it was read.
    ///
    /// @return whether it is
    boolean setExpiry(byte[] key, byte[] stored, V value, long expiry) {
        boolean isSame = Arrays.equals(cache.asMap().get(key), stored);
        if (isSame) {
            put(key, value, expiry);
        }
        return isSame;
    }

    void remove(byte[] key) {
        cache.invalidate(key);
    }

    Iterator<Map.Entry<byte[], byte[]>> iterator() {
        return cache.asMap().entrySet().iterator();
    }

    @Override
    public void close() {
        cache.close();
    }
}
