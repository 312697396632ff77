package io.hugewise.cache;

import java.util.SplittableRandom;
import java.util.function.IntFunction;
import java.util.function.LongFunction;
import java.util.function.ToIntFunction;

/// Puts values whose sizes drift, and adds up what of the limit entries use. The benchmark `store` uses it, too.
///
/// @param <V> type of values
public final class DriftingSizes<V> {
    /// Bytes of index and frequencies that an entry may need (docs/cache.md).
    public static final long MOST_INDEX = 24;
    private static final int HEADER = 4;
    private static final int SMALLEST_MEDIAN = 24;
    private static final double DEVIATION = 0.5;

    private final HugeCache<Long, V> cache;
    private final Values<V> values;
    private final SplittableRandom random = new SplittableRandom(1);
    private long previous;
    private long current;
    private long next;
    private long above;

    /// Keys and values of a cache.
    ///
    /// @param keySize bytes of a key
    /// @param smallest bytes of the smallest value
    /// @param largest bytes of the largest value
    /// @param create returns the value of a key and a size
    /// @param size returns the bytes of a value
    /// @param <V> type of values
    public record Values<V>(int keySize, int smallest, int largest, LongFunction<IntFunction<V>> create, ToIntFunction<V> size) {
        /// Bytes of an entry in its segment and its chunks, without expiry.
        long stored(int size) {
            return HEADER + keySize + size + Entries.ALIGNMENT - 1 & -Entries.ALIGNMENT;
        }
    }

    /// What entries use.
    ///
    /// @param entries their number
    /// @param live share of the limit of entries and the index that they need
    /// @param payload share of the limit of keys and values
    public record Use(long entries, double live, double payload) {}

    /// Begins with the smallest key.
    ///
    /// @param cache without expiry
    /// @param values its keys and values
    public DriftingSizes(HugeCache<Long, V> cache, Values<V> values) {
        this.cache = cache;
        this.values = values;
    }

    /// Returns the median of the sizes of values.
    ///
    /// @param point of the way from the smallest (0) to the largest (1)
    /// @return bytes
    public double median(double point) {
        return SMALLEST_MEDIAN * Math.pow((double) values.largest / SMALLEST_MEDIAN, point);
    }

    /// Puts values of log-normal sizes. After each put, two keys of this step or the one before are read, so that they
    /// replace older ones.
    ///
    /// @param point of the way from the smallest (0) to the largest (1)
    /// @param bytes that are put, with the index that entries need
    public void step(double point, long bytes) {
        previous = current;
        current = next;
        for (long put = 0; put < bytes; next++) {
            int size = (int) Math.clamp(median(point) * Math.exp(DEVIATION * random.nextGaussian()), values.smallest, values.largest);
            cache.put(next, values.create.apply(next).apply(size));
            put += values.stored(size) + MOST_INDEX;
            for (int read = 0; read < 2; read++) {
                cache.read(random.nextLong(previous, next + 1), view -> view.byteSize());
            }
            above = Math.max(above, cache.usedBytes() - cache.maximumBytes());
        }
        cache.cleanUp();
    }

    /// {@return the most bytes in use above the limit after any put}
    public long above() {
        return above;
    }

    /// {@return the number of puts}
    public long puts() {
        return next;
    }

    /// Adds up the entries that are present. An index that is larger than they need does not count.
    ///
    /// @return what they use
    public Use use() {
        long entries = 0;
        long stored = 0;
        long payload = 0;
        for (V value : cache.asMap().values()) {
            int size = values.size.applyAsInt(value);
            entries++;
            stored += values.stored(size);
            payload += values.keySize + size;
        }
        double limit = cache.maximumBytes();
        return new Use(entries, (stored + Math.min(cache.indexBytes(), MOST_INDEX * entries)) / limit, payload / limit);
    }
}
