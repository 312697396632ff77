package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Backing;
import java.lang.foreign.MemorySegment;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/// How much of the limit entries can use.
class UsedMemoryTest {
    private static final long LIMIT = 64 << 20;
    /// Of a cache with this limit.
    private static final int SEGMENT = 256 << 10;
    /// Bytes of index and frequencies that an entry may need.
    private static final long MOST_INDEX = 24;
    /// Share of the limit that entries must be able to use.
    private static final double LIVE = 0.92;
    /// Share of the limit up to which no entry is evicted because of others that were replaced.
    private static final double KEPT = 0.9;

    private static HugeCache<Long, byte[]> create() {
        return HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(LIMIT)
                .memory(options -> options.only(Backing.base())).build();
    }

    /// Bytes of an entry in its segment and its chunks.
    private static long stored(int size) {
        return Integer.BYTES * 2 + Long.BYTES + size + Long.BYTES - 1 & -Long.BYTES;
    }

    /// Share of the limit that entries use. An index that is larger than the entries need does not count.
    private static double live(HugeCache<Long, byte[]> cache) {
        long entries = 0;
        long bytes = 0;
        for (byte[] value : cache.asMap().values()) {
            entries++;
            bytes += stored(value.length);
        }
        return (double) (bytes + Math.min(cache.indexBytes(), MOST_INDEX * entries)) / cache.maximumBytes();
    }

    /// Sizes go from 16 bytes to that of a segment and back, three times.
    @Test
    void entriesFillTheLimitWhileSizesDrift() {
        var random = new SplittableRandom(1);
        try (var cache = create()) {
            long next = 0;
            long previous = 0;
            long current = 0;
            for (int step = 0; step < 72; step++) {
                double median = 24 * Math.pow(SEGMENT / 24.0, 1 - Math.abs(step % 24 / 12.0 - 1));
                previous = current;
                current = next;
                for (long put = 0; put < LIMIT / 3; next++) {
                    int size = (int) Math.clamp(median * Math.exp(0.5 * random.nextGaussian()), 16, SEGMENT);
                    cache.put(next, new byte[size]);
                    put += stored(size) + MOST_INDEX;
                    // So that they replace older ones.
                    for (int read = 0; read < 2; read++) {
                        cache.read(random.nextLong(previous, next + 1), MemorySegment::byteSize);
                    }
                    assertThat(cache.usedBytes()).isLessThanOrEqualTo(cache.maximumBytes());
                }
                cache.cleanUp();
                if (step >= 8) {
                    assertThat(live(cache)).as("step %d: sizes of about %.0f bytes", step, median).isGreaterThan(LIVE);
                }
            }
            assertThat(cache.stats().rejections()).isZero();
        }
    }

    /// Entries are replaced by others of different sizes, up to this one.
    @ParameterizedTest
    @ValueSource(ints = {1000, 60_000})
    void nothingIsEvictedAsLongAsAllEntriesFit(int largest) {
        var random = new SplittableRandom(2);
        try (var cache = create()) {
            long keys = (long) (KEPT * LIMIT / (stored(largest / 2) + MOST_INDEX));
            for (long put = 0; put < 12 * keys; put++) {
                long key = put < keys ? put : random.nextLong(keys);
                cache.put(key, new byte[random.nextInt(largest)]);
            }
            cache.cleanUp();
            assertThat(cache.stats().evictions()).isZero();
            assertThat(cache.stats().rejections()).isZero();
            assertThat(cache.estimatedSize()).isEqualTo(keys);
            assertThat(live(cache)).isBetween(KEPT - 0.05, KEPT + 0.05);
        }
    }
}
