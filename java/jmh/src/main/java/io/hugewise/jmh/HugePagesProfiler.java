package io.hugewise.jmh;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.infra.BenchmarkParams;
import org.openjdk.jmh.infra.IterationParams;
import org.openjdk.jmh.profile.ExternalProfiler;
import org.openjdk.jmh.profile.InternalProfiler;
import org.openjdk.jmh.profile.ProfilerException;
import org.openjdk.jmh.results.AggregationPolicy;
import org.openjdk.jmh.results.BenchmarkResult;
import org.openjdk.jmh.results.IterationResult;
import org.openjdk.jmh.results.Result;
import org.openjdk.jmh.results.ScalarResult;
import org.openjdk.jmh.results.TextResult;

/// A profiler for JMH that adds the page sizes of the benchmark's memory to each result:
///
/// ```text
/// java -cp benchmarks.jar:hugewise-jmh.jar org.openjdk.jmh.Main -prof io.hugewise.jmh.HugePagesProfiler
/// ```
///
/// | Column | Meaning |
/// |---|---|
/// | `pages.heap.huge` | share of the heap's resident bytes on huge pages in percent, sampled during an iteration |
/// | `pages.memory.huge` | the same for all memory of the JVM |
/// | `pages.memory.resident` | resident memory of the JVM in MiB |
/// | `pages.faults` | minor and major page faults of the JVM per operation |
/// | `pages.machine.thp_…` | transparent huge pages allocated and failed, on the whole machine, during the fork |
/// | `pages.EVENT` | hardware counts per operation, if `perf` supports them |
/// | `pages.note`, `pages.machine.note` | unknown readings, and the reasons |
///
/// The option `events=A,B` selects other events of `perf` than those of the data TLB.
///
/// It is an external profiler, which reads the machine's counters before and after a fork, and an internal
/// one, which reads memory inside the fork, where the heap's address is known.
@SuppressWarnings("rawtypes") // of JMH's interfaces
public final class HugePagesProfiler implements ExternalProfiler, InternalProfiler {
    private static final List<String> EVENTS = List.of("dTLB-loads", "dTLB-load-misses", "dTLB-store-misses");
    /// Names of the notes of the internal and the external part. JMH drops one of two notes of the same name.
    private static final String NOTE = "pages.note";

    private static final String MACHINE_NOTE = "pages.machine.note";
    private static final Path ROOT = Path.of("/");

    private final List<String> events;
    /// Created at first use, in the runner's JVM or in the fork.
    private @Nullable PerfEvents perf;
    private @Nullable Heap heap;
    private @Nullable ThpCounters before;
    private @Nullable Sampler sampler;
    private PerfEvents.@Nullable Counting counting;
    private long faults;

    /// Creates a profiler that counts the events of the data TLB.
    ///
    /// @throws ProfilerException if this is not Linux
    public HugePagesProfiler() throws ProfilerException {
        this("");
    }

    /// Creates a profiler with the options of JMH's `-prof`.
    ///
    /// @param options text after the profiler's name: `events=A,B`, or empty
    /// @throws ProfilerException if the system is not Linux, or the options are invalid
    public HugePagesProfiler(String options) throws ProfilerException {
        if (options.isEmpty()) {
            events = EVENTS;
        } else if (options.startsWith("events=") && options.length() > "events=".length()) {
            events = Arrays.asList(options.substring("events=".length()).split(",", -1));
        } else {
            throw new ProfilerException("'" + options + "' is not a valid option: use events=A,B");
        }
        if (!Files.isReadable(Path.of("/proc/self/smaps"))) {
            throw new ProfilerException("/proc/self/smaps cannot be read: this profiler needs Linux");
        }
    }

    @Override
    public String getDescription() {
        return "Huge pages: coverage of the heap and of all memory, page faults, fallbacks, dTLB misses";
    }

    private PerfEvents perf() {
        if (perf == null) {
            perf = PerfEvents.probe(events);
        }
        return perf;
    }

    // --- In the fork -----------------------------------------------------------------------------

    @Override
    public void beforeIteration(BenchmarkParams benchmark, IterationParams iteration) {
        if (heap == null) {
            heap = Heap.current();
        }
        boolean lengthKnown = benchmark.getMode() != Mode.SingleShotTime;
        counting = perf().count();
        faults = faults();
        sampler = new Sampler(heap, lengthKnown ? iteration.getTime().convertTo(TimeUnit.MILLISECONDS) : 0);
    }

    @Override
    public Collection<? extends Result> afterIteration(
            BenchmarkParams benchmark, IterationParams iteration, IterationResult result) {
        long faulted = faults() - faults;
        long operations = result.getMetadata().getAllOps();
        List<Result<?>> results = new ArrayList<>();
        if (operations > 0 && faults >= 0) {
            results.add(mean("faults", (double) faulted / operations, "#/op"));
        }
        if (counting != null && operations > 0) {
            counting.end().forEach((event, count) -> results.add(mean(event, count / operations, "#/op")));
        }
        try {
            Smaps sample = sampler == null ? null : sampler.end();
            if (sample == null) {
                results.add(note(NOTE, "coverage unknown: an iteration ended before its memory was sampled"));
                return results;
            }
            results.add(mean("memory.huge", sample.memory.percent(), "%"));
            results.add(mean("memory.resident", sample.memory.resident() / 1024.0, "MiB"));
            if (sample.heap.resident() > 0) {
                results.add(mean("heap.huge", sample.heap.percent(), "%"));
            } else {
                results.add(note(NOTE, "coverage of the heap unknown: this JVM does not report the heap's address"));
            }
        } catch (IOException error) {
            results.add(note(NOTE, "coverage unknown: " + error.getMessage()));
        }
        return results;
    }

    /// Page faults of this process since its start; -1 if unknown.
    private static long faults() {
        try {
            return faults(Files.readString(Path.of("/proc/self/stat")));
        } catch (IOException | RuntimeException error) {
            return -1;
        }
    }

    /// @param stat content of `/proc/PID/stat`. Of the fields after the name, which is in parentheses, the
    ///     eighth is the number of minor faults and the tenth that of major faults.
    static long faults(String stat) {
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ", -1);
        return Long.parseLong(fields[7]) + Long.parseLong(fields[9]);
    }

    // --- Around it -------------------------------------------------------------------------------

    @Override
    public void beforeTrial(BenchmarkParams benchmark) {
        before = ThpCounters.read(ROOT);
    }

    @Override
    public Collection<? extends Result> afterTrial(BenchmarkResult result, long pid, File out, File err) {
        List<Result<?>> results = new ArrayList<>();
        Map<String, Long> since = before == null ? Map.of() : ThpCounters.read(ROOT).since(before);
        since.forEach((name, count) -> results.add(
                new ScalarResult("pages.machine." + name, count, "#", AggregationPolicy.SUM)));
        if (since.isEmpty()) {
            results.add(note(MACHINE_NOTE, "/proc/vmstat has no counts of transparent huge pages"));
        }
        String missing = perf().missing(events);
        if (!missing.isEmpty()) {
            results.add(note(MACHINE_NOTE, missing));
        }
        return results;
    }

    private static Result<?> mean(String name, double value, String unit) {
        return new ScalarResult("pages." + name, value, unit, AggregationPolicy.AVG);
    }

    /// A note; JMH concatenates the notes of all iterations or forks.
    private static Result<?> note(String name, String text) {
        return new TextResult(text + "\n", name);
    }

    @Override
    public Collection<String> addJVMInvokeOptions(BenchmarkParams benchmark) {
        return List.of();
    }

    @Override
    public Collection<String> addJVMOptions(BenchmarkParams benchmark) {
        return List.of();
    }

    @Override
    public boolean allowPrintOut() {
        return true;
    }

    @Override
    public boolean allowPrintErr() {
        return true;
    }
}
