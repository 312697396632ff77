package io.hugewise.jmh;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class CountersTest {
    @TempDir
    Path root;

    private ThpCounters machine(long allocated, long fallbacks, long fallbacksOf64k) throws IOException {
        Path stats = root.resolve("sys/kernel/mm/transparent_hugepage/hugepages-64kB/stats");
        Files.createDirectories(stats);
        Files.createDirectories(root.resolve("proc"));
        Files.writeString(
                root.resolve("proc/vmstat"),
                "nr_free_pages 7\nthp_fault_alloc " + allocated + "\nthp_fault_fallback " + fallbacks
                        + "\nthp_fault_fallback_charge 9\n");
        Files.writeString(stats.resolve("anon_fault_fallback"), fallbacksOf64k + "\n");
        return ThpCounters.read(root);
    }

    @Test
    void countersAreDifferencesNamedBySize() throws IOException {
        ThpCounters before = machine(100, 5, 3);
        assertThat(machine(150, 5, 4).since(before))
                .isEqualTo(Map.of("thp_fault_alloc", 50L, "thp_fault_fallback", 0L, "64kB.anon_fault_fallback", 1L));
    }

    @Test
    void aMissingCounterIsNotZero() throws IOException {
        ThpCounters nothing = ThpCounters.read(root);
        assertThat(machine(1, 2, 3).since(nothing)).isEmpty();
        assertThat(nothing.since(nothing)).isEmpty();
    }

    @Test
    void anEventThatPerfCannotCountHasNoCount() {
        Map<String, Double> counts = PerfEvents.parse(List.of(
                "# started on Sat",
                "",
                "<not supported>,,dTLB-load-misses,0,100.00,,",
                "<not counted>,,dTLB-loads,0,0.00,,",
                "1234,,page-faults,5678,100.00,,"));
        assertThat(counts).isEqualTo(Map.of("page-faults", 1234.0));
    }

    @Test
    void aMissingEventHasAReason() {
        List<String> events = List.of("no-such-event");
        assertThat(PerfEvents.probe(events).missing(events)).startsWith("no-such-event: not counted: ");
    }

    @Test
    void faultsAreParsedAfterAnyName() {
        assertThat(HugePagesProfiler.faults("12 (a) b (c) S 1 12 12 0 -1 4194304 1000 5 20 7 30 10")).isEqualTo(1020);
    }
}
