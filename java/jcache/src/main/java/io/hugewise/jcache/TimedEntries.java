package io.hugewise.jcache;

import io.hugewise.cache.HugeCache;
import io.hugewise.cache.RemovalCause;
import io.hugewise.cache.Serializers;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/// Keys and values as bytes in a cache, with times of expiry in milliseconds. The cache's own times, which are less
/// exact and later, free memory.
///
/// Equal keys may have different bytes, for example two lists of different classes. The entry of such a key is at one
/// of a few places of its hash code, and has the key before the value:
///
/// ```text
/// HASHED (1) │ hash code (4) │ place (1)        expiry (8) │ size of the key (4) │ key │ value
/// ```
final class TimedEntries<K, V> implements AutoCloseable {
    private static final long LATER_MILLIS = 1000;
    private static final byte HASHED = 5;
    private static final int AT_PLACE = 1 + Integer.BYTES;
    /// Keys of the same hash code that can be there at the same time; more evict each other.
    private static final int PLACES = 8;
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
                        expired.accept(key(key, value), value(key, value));
                    }
                })
                .build();
    }

    /// The bytes that the locks of operations depend on: equal ones of equal keys.
    byte[] lockBytes(K key) {
        return ObjectBytes.isCanonical(key) ? objects.write(key, 0) : place(key, 0);
    }

    /// An entry that was found.
    @SuppressWarnings("ArrayRecordComponent") // It is not compared.
    record Found(byte[] bytes, byte[] stored) {}

    /// Finds the entry of a key, and counts the use.
    @Nullable Found find(K key) {
        if (ObjectBytes.isCanonical(key)) {
            byte[] bytes = objects.write(key, 0);
            byte[] stored = get(bytes);
            return stored == null ? null : new Found(bytes, stored);
        }
        Found found = found(key);
        return found == null || get(found.bytes) == null ? null : found;
    }

    private @Nullable Found found(K key) {
        boolean isCanonical = ObjectBytes.isCanonical(key);
        for (int number = 0; number < (isCanonical ? 1 : PLACES); number++) {
            byte[] bytes = isCanonical ? objects.write(key, 0) : place(key, number);
            byte[] stored = cache.asMap().get(bytes);
            if (stored != null && (isCanonical || key.equals(key(bytes, stored)))) {
                return new Found(bytes, stored);
            }
        }
        return null;
    }

    /// The bytes by which the entry of a key is found, or will be. The caller runs an operation of the key.
    byte[] bytes(K key) {
        if (ObjectBytes.isCanonical(key)) {
            return objects.write(key, 0);
        }
        Found found = found(key);
        if (found != null) {
            return found.bytes;
        }
        for (int number = 0; number < PLACES; number++) {
            if (cache.asMap().get(place(key, number)) == null) {
                return place(key, number);
            }
        }
        cache.invalidate(place(key, 0));
        return place(key, 0);
    }

    private static byte[] place(Object key, int number) {
        return ByteBuffer.allocate(AT_PLACE + 1).put(HASHED).putInt(key.hashCode()).put((byte) number).array();
    }

    /// The key of an entry.
    @SuppressWarnings("unchecked")
    K key(byte[] bytes, byte[] stored) {
        return (K) (bytes[0] == HASHED ? objects.read(stored, Long.BYTES + Integer.BYTES, valueOffset(bytes, stored)) : objects.read(bytes, 0));
    }

    @SuppressWarnings("unchecked")
    V value(byte[] bytes, byte[] stored) {
        return (V) objects.read(stored, valueOffset(bytes, stored));
    }

    private static int valueOffset(byte[] bytes, byte[] stored) {
        return Long.BYTES + (bytes[0] == HASHED ? Integer.BYTES + ByteBuffer.wrap(stored).getInt(Long.BYTES) : 0);
    }

    /// A copy of a value by its bytes.
    @SuppressWarnings("unchecked")
    V copy(V value) {
        return (V) objects.read(objects.write(value, 0), 0);
    }

    static long expiry(byte[] stored) {
        return MemorySegment.ofArray(stored).get(EXPIRY, 0);
    }

    byte @Nullable [] get(byte[] key) {
        return cache.getIfPresent(key);
    }

    /// Whether a key has a value that has not expired.
    boolean isPresent(K key) {
        Found found = found(key);
        return found != null && !Expirations.isPast(expiry(found.stored));
    }

    /// What [#put] stores.
    ///
    /// @throws TooLargeException if it is too large for the cache
    byte[] stored(byte[] bytes, K key, V value, long expiry) {
        byte[] stored;
        if (bytes[0] == HASHED) {
            byte[] written = objects.write(key, 0);
            stored = objects.write(value, Long.BYTES + Integer.BYTES + written.length);
            ByteBuffer.wrap(stored).position(Long.BYTES).putInt(written.length).put(written);
        } else {
            stored = objects.write(value, Long.BYTES);
        }
        if (!cache.fits(bytes, stored)) {
            throw new TooLargeException((long) bytes.length + stored.length, cache.maximumBytes());
        }
        MemorySegment.ofArray(stored).set(EXPIRY, 0, expiry);
        return stored;
    }

    /// Adds or replaces an entry.
    ///
    /// @param stored of [#stored]
    void put(byte[] key, byte[] stored) {
        long expiry = expiry(stored);
        if (expiry == Expirations.NEVER) {
            cache.put(key, stored);
        } else {
            cache.put(key, stored, Duration.ofMillis(Math.max(0, expiry - Expirations.now()) + LATER_MILLIS));
        }
    }

    /// Changes when an entry expires, if it is as it was found.
    ///
    /// @return whether it is
    boolean setExpiry(Found found, long expiry) {
        boolean isSame = Arrays.equals(cache.asMap().get(found.bytes), found.stored);
        if (isSame) {
            byte[] stored = found.stored.clone();
            MemorySegment.ofArray(stored).set(EXPIRY, 0, expiry);
            put(found.bytes, stored);
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
