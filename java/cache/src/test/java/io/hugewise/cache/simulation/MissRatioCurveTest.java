package io.hugewise.cache.simulation;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.hugewise.cache.policy.MissRatioCurve;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/// The estimated curve, with simulated LRU caches as the truth.
class MissRatioCurveTest {
    private static final double TOLERANCE = 0.025;
    private static final double[] SHARES = {0.05, 0.1, 0.2, 0.4, 0.8};

    static Stream<Arguments> traces() {
        return Stream.of(Generated.zipfWithScans(), Generated.keyValue(), TraceFiles.ints("cache2k web12", "cache2k/web12.trace.xz"),
                TraceFiles.longs("scarab recs", "scarab/scarab-recs.trace.xz"), TraceFiles.adaptSize().withoutSizes()).map(Arguments::of);
    }

    @ParameterizedTest
    @MethodSource("traces")
    void isThatOfSimulatedCaches(Trace trace) {
        var curve = new MissRatioCurve(trace.footprint());
        for (int key : trace.requests()) {
            long hash = hash(key);
            curve.requested(1);
            if (curve.isSampled(hash)) {
                curve.read(hash);
                curve.written(hash, trace.sizes()[key]);
            }
        }
        for (double share : SHARES) {
            long capacity = Math.round(trace.footprint() * share);
            var lru = new Lru(capacity, trace.sizes());
            long misses = 0;
            for (int key : trace.requests()) {
                misses += lru.request(key) ? 0 : 1;
            }
            assertThat(curve.missRatio(capacity)).as("%s at %s", trace.name(), share).isPresent();
            assertThat(curve.missRatio(capacity).getAsDouble()).as("%s at %s", trace.name(), share)
                    .isCloseTo((double) misses / trace.requests().length, within(TOLERANCE));
        }
    }

    private static long hash(int key) {
        long hash = (key + 1) * 0xBF58476D1CE4E5B9L;
        return (hash ^ hash >>> 31) * 0x94D049BB133111EBL;
    }

    @Test
    void removedKeysMissInCachesOfAnySize() {
        var curve = new MissRatioCurve(1000);
        assertThat(curve.missRatio(1000)).isEmpty();
        for (int i = 0; i < 2_000; i++) {
            curve.requested(1);
            curve.read(1);
            curve.written(1, 10);
            if (i % 2 == 0) {
                curve.removed(1);
            }
        }
        assertThat(curve.missRatio(1000).getAsDouble()).isCloseTo(0.5, within(0.001));
        assertThat(curve.missRatio(5).getAsDouble()).isEqualTo(1);
    }
}
