package io.hugewise.jmh;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.profile.ProfilerException;
import org.openjdk.jmh.results.Result;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;

public class HugePagesProfilerTest {
    @State(Scope.Thread)
    public static class Subject {
        private final byte[] memory = new byte[8 << 20];
        private int at;

        /// Sleeps, so that other tests have the CPU meanwhile.
        @Benchmark
        @BenchmarkMode(Mode.AverageTime)
        public byte read() throws InterruptedException {
            Thread.sleep(1);
            at = at * 1103515245 + 12345;
            return memory[(at >>> 4) & memory.length - 1];
        }
    }

    @Test
    void aResultHasTheColumns(@TempDir Path folder) throws RunnerException {
        var options = new OptionsBuilder()
                .include(Subject.class.getName().replace('$', '.'))
                .warmupIterations(0)
                .measurementIterations(1)
                .measurementTime(TimeValue.seconds(10))
                .forks(1)
                .jvmArgs("-Xms64m", "-Xmx64m", "-XX:+UseSerialGC", "-XX:+AlwaysPreTouch")
                .addProfiler(HugePagesProfiler.class)
                .output(folder.resolve("jmh.log").toString())
                .build();
        Map<String, Result> columns = new Runner(options).runSingle().getSecondaryResults();
        assertThat(columns)
                .containsKeys("pages.heap.huge", "pages.memory.huge", "pages.faults", "pages.machine.thp_fault_fallback");
        assertThat(columns.get("pages.heap.huge").getScore()).isBetween(0.0, 100.0);
        assertThat(columns.get("pages.memory.resident").getScore()).isGreaterThan(64);
        // Without counters there is a note.
        if (!columns.containsKey("pages.dTLB-load-misses")) {
            assertThat(columns.get("pages.machine.note").extendedInfo()).contains("dTLB-load-misses", "not counted");
        }
    }

    @Test
    void anIterationThatWasTooShortHasNoCoverage() throws IOException {
        assertThat(new Sampler(Heap.current(), TimeUnit.HOURS.toMillis(1)).end()).isNull();
    }

    @Test
    void unknownOptionsAreRefused() {
        assertThatThrownBy(() -> new HugePagesProfiler("event=x")).isInstanceOf(ProfilerException.class).hasMessageContaining("events=A,B");
    }
}
