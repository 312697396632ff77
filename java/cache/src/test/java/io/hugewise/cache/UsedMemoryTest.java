package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Backing;
import java.util.Arrays;
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
    /// Share of the limit that entries must be able to use. It is greater in larger caches, of which 8 segments are a smaller
    /// share.
    private static final double LIVE = 0.87;
    private static final int CYCLES = Integer.getInteger("hugewise.cycles", 1);
    /// Share of the limit up to which no entry is evicted because of others that were replaced.
    private static final double KEPT = 0.9;

    private static HugeCache<Long, byte[]> create() {
        return HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(LIMIT)
                .memory(options -> options.only(Backing.base())).build();
    }

    /// Sizes go from 16 bytes to that of a segment and back.
    @Test
    void entriesFillTheLimitWhileSizesDrift() {
        try (var cache = create()) {
            var sizes = new DriftingSizes<>(cache, VALUES);
            for (int step = 0; step < 24 * CYCLES; step++) {
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

    /// Bytes of an entry, with the index that it needs.
    private static long stored(int size) {
        return VALUES.stored(size) + DriftingSizes.MOST_INDEX;
    }

    /// Entries are replaced by others of different sizes, up to this one.
    @ParameterizedTest
    @ValueSource(ints = {1000, 60_000})
    void nothingIsEvictedAsLongAsAllEntriesFit(int largest) {
        var random = new SplittableRandom(2);
        try (var cache = create()) {
            long[] kept = new long[(int) (KEPT * LIMIT / stored(largest / 2))];
            long sum = 0;
            for (int put = 0; put < 12 * kept.length; put++) {
                int key = put < kept.length ? put : random.nextInt(kept.length);
                int size = random.nextInt(largest);
                long more = stored(size) - kept[key];
                if (sum + more <= KEPT * LIMIT) {
                    cache.put((long) key, new byte[size]);
                    kept[key] += more;
                    sum += more;
                }
            }
            cache.cleanUp();
            assertThat(cache.stats().evictions()).isZero();
            assertThat(cache.stats().rejections()).isZero();
            assertThat(cache.estimatedSize()).isEqualTo(Arrays.stream(kept).filter(bytes -> bytes > 0).count());
            assertThat(new DriftingSizes<>(cache, VALUES).use().live()).isBetween(KEPT - 0.05, KEPT + 0.05);
        }
    }
}
