package io.hugewise.benchmarks;

import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/// Random reads of 8 bytes in a segment of 2 GiB: of an arena on huge pages, of memory of the same backing
/// mapped by hand, and of the JVM's own memory.
///
/// Generator (xorshift64, 13-7-17) and overlap of the reads are those of `hugewise bench touch`, so the results
/// are comparable.
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(value = 1, jvmArgsAppend = "--enable-native-access=ALL-UNNAMED")
public class SegmentTouch {
    static final int READS = 4096;

    /// Source of the memory, and its backing.
    @Param({"jdk", "arena:base", "raw:base", "arena:thp", "raw:thp", "arena:hugetlb", "raw:hugetlb"})
    String memory;

    @Param("2147483648")
    long bytes;

    private Arena owner;
    private MemorySegment segment;
    private long state = 0x9E37_79B9_7F4A_7C15L;

    @Setup
    public void setup() {
        String[] words = memory.split(":");
        switch (words[0]) {
            case "jdk" -> {
                owner = Arena.ofShared();
                segment = owner.allocate(bytes, 8);
            }
            case "arena" -> {
                var arena = HugeArena.ofShared(
                        HugeOptions.reserve(bytes).only(RawMemory.backing(words[1])).pretouch());
                owner = arena;
                segment = arena.allocate(bytes, 8);
            }
            default -> {
                owner = Arena.ofShared();
                segment = RawMemory.map(bytes, words[1], owner);
            }
        }
        for (long offset = 0; offset < bytes; offset += 8) {
            segment.set(ValueLayout.JAVA_LONG, offset, offset);
        }
    }

    @TearDown
    public void tearDown() {
        owner.close();
    }

    @Benchmark
    @OperationsPerInvocation(READS)
    public long read() {
        MemorySegment of = segment;
        // The length is a power of two, so a mask is enough. A product, as in the native loop, needs more
        // instructions in the JIT's code, and fewer reads would overlap.
        long mask = of.byteSize() - 8;
        long x = state;
        long sum = 0;
        for (int i = 0; i < READS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
            sum += of.get(ValueLayout.JAVA_LONG_UNALIGNED, x & mask);
        }
        state = x;
        return sum;
    }
}
