package io.hugewise.cache.simulation;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.cache.HugeCache;
import io.hugewise.cache.Serializers;
import io.hugewise.memory.Backing;
import java.util.Arrays;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/// The cache itself hits about as often as its simulation, which has no chunks: with large values, it may hit more often,
/// because they are evicted one at a time.
class StoreOnTracesTest {
    private static final long LIMIT = 8 << 20;
    /// Size of an entry with an empty value: header, key.
    private static final int OVERHEAD = 16;
    private static final int LARGEST = 60_000;
    /// Points by which the hit ratios may differ. The cache evicts in advance, in a thread of its own.
    private static final double LARGEST_DIFFERENCE = 2;
    private static final double LARGEST_GAIN = 10;
    /// Of the segments of 64 KiB that this limit leads to.
    private static final int LARGEST_WITHOUT_CHUNKS = 2048;

    static Stream<Arguments> traces() {
        return Stream.of(
                TraceFiles.ints("cache2k web12", "cache2k/web12.trace.xz"),
                TraceFiles.ints("cache2k web07", "cache2k/web07.trace.xz"),
                TraceFiles.longs("scarab recs", "scarab/scarab-recs.trace.xz"),
                TraceFiles.adaptSize().withoutSizes(),
                TraceFiles.adaptSize()).flatMap(trace -> Stream.of(Arguments.of(trace, 0.1), Arguments.of(trace, 0.3)));
    }

    @ParameterizedTest(name = "{0} at {1}")
    @MethodSource("traces")
    void hitsAsOftenAsInTheSimulation(Trace trace, double share) {
        // Sizes at which the limit is the share of all entries.
        double scale = 0.95 * LIMIT / (share * trace.footprint());
        int[] sizes = Arrays.stream(trace.sizes()).map(size -> (int) Math.clamp(size * scale, OVERHEAD, LARGEST) + 7 & -8).toArray();
        try (var cache = HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(LIMIT)
                .memory(options -> options.only(Backing.base())).build()) {
            long present = 0;
            long samples = 0;
            int[] requests = trace.requests();
            for (int i = 0; i < requests.length; i++) {
                if (cache.getIfPresent((long) requests[i]) == null) {
                    cache.put((long) requests[i], new byte[sizes[requests[i]] - OVERHEAD]);
                }
                if (i > requests.length / 4 && i % (requests.length / 16) == 0) {
                    present += cache.asMap().values().stream().mapToLong(value -> value.length + OVERHEAD).sum();
                    samples++;
                }
            }
            Policy simulated = new SegmentTinyLfu(present / samples, sizes);
            long hits = Arrays.stream(requests).filter(simulated::request).count();
            double difference = 100 * (cache.stats().hitRatio() - (double) hits / requests.length);
            boolean haveChunks = Arrays.stream(sizes).max().orElseThrow() > LARGEST_WITHOUT_CHUNKS;
            assertThat(difference).as("%s at %s: %.2f points", trace.name(), share, difference)
                    .isBetween(-LARGEST_DIFFERENCE, haveChunks ? LARGEST_GAIN : LARGEST_DIFFERENCE);
        }
    }
}
