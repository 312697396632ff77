package io.hugewise.cache.simulation;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import java.io.IOException;
import java.nio.file.Path;
import java.util.SplittableRandom;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class SimulationTest {
    /// Points by which a hit ratio may be below Caffeine's.
    private static final double LARGEST_LOSS = 2;

    static Stream<Arguments> traces() {
        return Stream.of(
                TraceFiles.ints("cache2k web12", "cache2k/web12.trace.xz"),
                TraceFiles.longs("corda", "corda/trace_vaultservice.gz"),
                TraceFiles.longs("scarab recs", "scarab/scarab-recs.trace.xz"),
                TraceFiles.adaptSize(),
                TraceFiles.adaptSize().withoutSizes(),
                TraceFiles.ints("cache2k web07", "cache2k/web07.trace.xz"),
                Generated.files(),
                Generated.keyValue()).map(Arguments::of);
    }

    @ParameterizedTest
    @MethodSource("traces")
    void segmentsHitAboutAsOftenAsCaffeineAndMoveLittle(Trace trace) {
        for (double share : Simulation.SHARES) {
            Simulation.Row row = Simulation.row(trace, share);

            assertThat(row.difference()).as("%s at %s", trace.name(), share).isGreaterThan(-LARGEST_LOSS);
            assertThat(row.moved()).isLessThanOrEqualTo(SegmentTinyLfu.MOST_MOVED);
        }
    }

    @Test
    void segmentsResistALoopWhereFifoFails() {
        int[] loop = IntStream.range(0, 400_000).map(i -> i % 10_000).toArray();
        int[] sizes = IntStream.range(0, 10_000).map(_ -> 1).toArray();

        Simulation.Row row = Simulation.row(new Trace("loop", loop, sizes), 0.3);

        assertThat(row.hits().get("LRU")).isZero();
        assertThat(row.hits().get("segments, FIFO")).isLessThan(0.01);
        assertThat(row.hits().get("segments, W-TinyLFU")).isGreaterThan(0.2);
    }

    /// Keys share counters in the sketch, so a key that was requested once can look like one that was requested twice.
    @Test
    void newKeysAreSeldomMoved() {
        int[] sizes = new SplittableRandom(1).ints(400_000, 150, 4_000).toArray();
        var policy = new SegmentTinyLfu(64 << 20, sizes);

        IntStream.range(0, sizes.length).forEach(policy::request);

        assertThat(policy.bytes()).isGreaterThan(60 << 20);
        assertThat(policy.amplification()).isLessThan(0.2);
    }

    @Test
    void policiesStayWithinTheirCapacity() {
        int[] sizes = IntStream.range(0, 5_000).map(key -> 1 + key % 97).toArray();
        for (Segments policy : new Segments[] {new SegmentFifo(20_000, sizes), new SegmentTinyLfu(20_000, sizes)}) {
            for (int i = 0; i < 200_000; i++) {
                policy.request((int) ((i * 2654435761L >>> 7) % 5_000));
                assertThat(policy.bytes()).isLessThanOrEqualTo(20_000);
            }
            long present = IntStream.range(0, 5_000).filter(key -> policy.present[key]).mapToLong(key -> sizes[key]).sum();
            assertThat(policy.bytes()).isEqualTo(present);
        }
    }

    @Test
    void lruEvictsTheKeyUsedLeastRecently() {
        var lru = new Lru(2, new int[] {1, 1, 1});

        assertThat(IntStream.of(0, 1, 0, 2, 0, 1).mapToObj(lru::request)).containsExactly(false, false, true, false, true, false);
    }

    @Test
    void sizesCountOncePerKey() {
        Trace trace = Trace.of("sizes", new long[] {5, 7, 5}, new long[] {10, 20, 30});

        assertThat(trace.requests()).containsExactly(0, 1, 0);
        assertThat(trace.footprint()).isEqualTo(50);
        assertThat(Simulation.row(trace, 1).byteHits().get("LRU")).isCloseTo(30 / 80.0, within(1e-9));
    }

    /// Writes the results of all traces to a file, for the documentation.
    @Test
    @EnabledIfSystemProperty(named = "simulation.results", matches = ".+", disabledReason = "takes minutes: -Dsimulation.results=FILE")
    void writesTheResultsOfAllTraces() throws IOException {
        Simulation.write(Path.of(System.getProperty("simulation.results")));
    }
}
