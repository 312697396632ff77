package io.hugewise.benchmarks;

import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import java.lang.foreign.Arena;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/// Time to reserve, populate and release 1 GiB.
@State(Scope.Benchmark)
@BenchmarkMode(Mode.SingleShotTime)
@OutputTimeUnit(TimeUnit.MILLISECONDS)
@Warmup(iterations = 2)
@Measurement(iterations = 5)
@Fork(value = 1, jvmArgsAppend = "--enable-native-access=ALL-UNNAMED")
public class Pretouch {
    private static final long BYTES = 1L << 30;

    /// Source of the memory, and its backing. The JDK populates its own memory by zeroing it, with one thread.
    @Param({"jdk", "arena:base", "raw:base", "arena:thp", "raw:thp", "arena:hugetlb", "raw:hugetlb"})
    String memory;

    @Benchmark
    public long touch() {
        String[] words = memory.split(":");
        if (words[0].equals("arena")) {
            var options = HugeOptions.reserve(BYTES).only(RawMemory.backing(words[1])).pretouch();
            try (var arena = HugeArena.ofShared(options)) {
                return arena.allocate(BYTES).address();
            }
        }
        try (var arena = Arena.ofShared()) {
            return (words[0].equals("jdk") ? arena.allocate(BYTES, 8) : RawMemory.map(BYTES, words[1], arena)).address();
        }
    }
}
