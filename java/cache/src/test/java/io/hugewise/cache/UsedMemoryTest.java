package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Backing;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/// How much of the limit entries can use.
class UsedMemoryTest {
    private static final long LIMIT = 64 << 20;
    /// Of a cache with this limit.
    private static final int SEGMENT = 256 << 10;
    private static final DriftingSizes.Values<byte[]> VALUES = new DriftingSizes.Values<>(Long.BYTES, 16, SEGMENT, _ -> byte[]::new, value -> value.length);
    /// Share of the limit that entries must be able to use.
    private static final double LIVE = 0.92;
    /// Share of the limit up to which no entry is evicted because of others that were replaced.
    private static final double KEPT = 0.9;

    private static HugeCache<Long, byte[]> create() {
        return HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(LIMIT)
                .memory(options -> options.only(Backing.base())).build();
    }

    /// Sizes go from 16 bytes to that of a segment and back, three times.
    @Test
    void entriesFillTheLimitWhileSizesDrift() {
        try (var cache = create()) {
            var sizes = new DriftingSizes<>(cache, VALUES);
            for (int step = 0; step < 72; step++) {
                double point = 1 - Math.abs(step % 24 / 12.0 - 1);
                sizes.step(point, LIMIT / 3);
                if (step >= 8) {
                    assertThat(sizes.use().live()).as("step %d: sizes of about %.0f bytes", step, sizes.median(point)).isGreaterThan(LIVE);
                }
            }
            assertThat(sizes.above()).isZero();
            assertThat(cache.stats().rejections()).isZero();
        }
    }

    /// Entries are replaced by others of different sizes, up to this one.
    @ParameterizedTest
    @ValueSource(ints = {1000, 60_000})
    void nothingIsEvictedAsLongAsAllEntriesFit(int largest) {
        var random = new SplittableRandom(2);
        try (var cache = create()) {
            long keys = (long) (KEPT * LIMIT / (VALUES.stored(largest / 2) + DriftingSizes.MOST_INDEX));
            for (long put = 0; put < 12 * keys; put++) {
                long key = put < keys ? put : random.nextLong(keys);
                cache.put(key, new byte[random.nextInt(largest)]);
            }
            cache.cleanUp();
            assertThat(cache.stats().evictions()).isZero();
            assertThat(cache.stats().rejections()).isZero();
            assertThat(cache.estimatedSize()).isEqualTo(keys);
            assertThat(new DriftingSizes<>(cache, VALUES).use().live()).isBetween(KEPT - 0.05, KEPT + 0.05);
        }
    }
}
