package io.hugewise.benchmarks;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.CompilerControl;
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

/// Access patterns for the same hash table of 2 GiB in a [HugeArena]: some lose more time than huge pages gain.
///
/// A lookup compares all 8 slots of a bucket with its key, without a branch that could be mispredicted, and
/// reads 3 fields of the entry: two cache lines, as in a cache or a database.
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(value = 1, jvmArgsAppend = "--enable-native-access=ALL-UNNAMED")
public class HashProbe {
    private static final int LOOKUPS = 4096;
    private static final int BITS = 24;
    private static final long KEYS = 1L << BITS;
    private static final int SLOTS = 8;
    /// Size of a bucket and of an entry in bytes: a cache line.
    private static final int LINE = 64;
    private static final long ENTRIES = KEYS * LINE;
    private static final long BYTES = 2 * ENTRIES;

    @Param({"base", "thp"})
    String backing;

    /// An arena in a constant, as in a program with one arena for its whole life.
    private static final class Constant {
        static String backing = "base";

        private Constant() {}

        static final class Memory {
            static final HugeArena ARENA = HugeArena.ofShared(
                    HugeOptions.reserve(BYTES).only(RawMemory.backing(backing)).pretouch());
            static final MemorySegment SEGMENT = ARENA.allocate(BYTES, LINE);

            private Memory() {}
        }
    }

    private MemorySegment memory;
    private long state = 0x9E37_79B9_7F4A_7C15L;

    @Setup
    public void setup() {
        Constant.backing = backing;
        memory = Constant.Memory.SEGMENT;
        for (long key = 0; key < KEYS; key++) {
            memory.set(JAVA_LONG, bucket(key) + 8 * (key * 31 >>> 5 & SLOTS - 1), key + 1);
            long entry = ENTRIES + key * LINE;
            memory.set(JAVA_LONG, entry, key);
            memory.set(JAVA_LONG, entry + 8, 3 * key);
            memory.set(JAVA_LONG, entry + 48, 5 * key);
        }
        for (long key : new long[] {0, 1, KEYS / 3, KEYS - 1}) {
            long base = memory.address();
            long[] found = {fields(key), slices(key), constantSlices(key), everything(base, key), everythingSlices(base, key)};
            for (long sum : found) {
                if (sum != 9 * key) {
                    throw new IllegalStateException("key " + key + ": " + sum);
                }
            }
        }
    }

    @TearDown
    public void tearDown() {
        Constant.Memory.ARENA.close();
    }

    /// Offset of a key's bucket in bytes. Each key has its own; buckets of neighbouring keys are far apart.
    private static long bucket(long key) {
        return (key * 0x9E_3779L & KEYS - 1) * LINE;
    }

    private interface Lookup {
        long of(long key);
    }

    private long lookUp(Lookup lookup) {
        long x = state;
        long sum = 0;
        for (int i = 0; i < LOOKUPS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
            sum += lookup.of(x & KEYS - 1);
        }
        state = x;
        return sum;
    }

    /// The obvious pattern: each read through the whole segment.
    @Benchmark
    @OperationsPerInvocation(LOOKUPS)
    public long get() {
        return lookUp(this::fields);
    }

    /// The recommended pattern (docs/java.md): a slice per object, and unaligned layouts.
    @Benchmark
    @OperationsPerInvocation(LOOKUPS)
    public long slice() {
        return lookUp(this::slices);
    }

    /// The recommended pattern, with the segment in a constant.
    @Benchmark
    @OperationsPerInvocation(LOOKUPS)
    public long constantSlice() {
        return lookUp(HashProbe::constantSlices);
    }

    /// Addresses in the whole address space, without a check that the memory exists.
    @Benchmark
    @OperationsPerInvocation(LOOKUPS)
    public long everything() {
        long base = memory.address();
        return lookUp(key -> everything(base, key));
    }

    /// Slices of the whole address space: the cost of `Unsafe`.
    @Benchmark
    @OperationsPerInvocation(LOOKUPS)
    public long everythingSlice() {
        long base = memory.address();
        return lookUp(key -> everythingSlices(base, key));
    }

    // Compiled separately, like the lookup of a real table: inlined, their checks would be hoisted out of the loop.

    @CompilerControl(CompilerControl.Mode.DONT_INLINE)
    private long fields(long key) {
        MemorySegment of = memory;
        long bucket = bucket(key);
        long found = 0;
        for (int slot = 0; slot < SLOTS; slot++) {
            long here = of.get(JAVA_LONG, bucket + 8L * slot);
            found |= here == key + 1 ? here : 0;
        }
        long entry = ENTRIES + (found - 1) * LINE;
        return of.get(JAVA_LONG, entry) + of.get(JAVA_LONG, entry + 8) + of.get(JAVA_LONG, entry + 48);
    }

    @CompilerControl(CompilerControl.Mode.DONT_INLINE)
    private long slices(long key) {
        return sliced(memory, 0, key);
    }

    @CompilerControl(CompilerControl.Mode.DONT_INLINE)
    private static long constantSlices(long key) {
        return sliced(Constant.Memory.SEGMENT, 0, key);
    }

    @CompilerControl(CompilerControl.Mode.DONT_INLINE)
    private static long everything(long base, long key) {
        long bucket = base + bucket(key);
        long found = 0;
        for (int slot = 0; slot < SLOTS; slot++) {
            long here = RawMemory.ALL.get(JAVA_LONG, bucket + 8L * slot);
            found |= here == key + 1 ? here : 0;
        }
        long entry = base + ENTRIES + (found - 1) * LINE;
        return RawMemory.ALL.get(JAVA_LONG, entry)
                + RawMemory.ALL.get(JAVA_LONG, entry + 8)
                + RawMemory.ALL.get(JAVA_LONG, entry + 48);
    }

    @CompilerControl(CompilerControl.Mode.DONT_INLINE)
    private static long everythingSlices(long base, long key) {
        return sliced(RawMemory.ALL, base, key);
    }

    @CompilerControl(CompilerControl.Mode.INLINE)
    private static long sliced(MemorySegment of, long base, long key) {
        MemorySegment bucket = of.asSlice(base + bucket(key), LINE);
        long found = 0;
        for (int slot = 0; slot < SLOTS; slot++) {
            long here = bucket.get(JAVA_LONG_UNALIGNED, 8L * slot);
            found |= here == key + 1 ? here : 0;
        }
        MemorySegment entry = of.asSlice(base + ENTRIES + (found - 1) * LINE, LINE);
        return entry.get(JAVA_LONG_UNALIGNED, 0)
                + entry.get(JAVA_LONG_UNALIGNED, 8)
                + entry.get(JAVA_LONG_UNALIGNED, 48);
    }
}
