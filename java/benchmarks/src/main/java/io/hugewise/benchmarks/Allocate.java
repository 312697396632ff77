package io.hugewise.benchmarks;

import io.hugewise.memory.HugeAllocator;
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
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/// Frees a random one of 256 live blocks of a thread, allocates another one in its place, and writes to it.
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(value = 1, jvmArgsAppend = "--enable-native-access=ALL-UNNAMED")
public class Allocate {
    private static final int LIVE = 256;
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;

    @Param({"16", "64", "256", "1024", "4096", "16384", "65536"})
    int size;

    private int order;

    private int next() {
        order = order * 1664525 + 1013904223;
        return order >>> 24;
    }

    /// One allocator for all threads.
    @State(Scope.Benchmark)
    public static class OnHugePages {
        private HugeArena arena;
        private HugeAllocator allocator;

        @Setup
        public void setup() {
            arena = HugeArena.ofShared(HugeOptions.reserve(256L << 20).pretouch());
            allocator = HugeAllocator.of(arena);
        }

        @TearDown
        public void tearDown() {
            arena.close();
        }
    }

    /// Live blocks of a thread.
    @State(Scope.Thread)
    public static class HugeBlocks {
        private final long[] offsets = new long[LIVE];
        private final MemorySegment[] segments = new MemorySegment[LIVE];

        @Setup
        public void setup(OnHugePages on, Allocate of) {
            for (int i = 0; i < LIVE; i++) {
                offsets[i] = on.allocator.allocateOffset(of.size);
                segments[i] = on.allocator.allocate(of.size);
            }
        }
    }

    /// `HugeAllocator`, by offset.
    @Benchmark
    public long hugeOffset(OnHugePages on, HugeBlocks live) {
        int i = next();
        on.allocator.freeOffset(live.offsets[i]);
        long offset = on.allocator.allocateOffset(size);
        on.allocator.memory().set(LONG, offset, i);
        return live.offsets[i] = offset;
    }

    /// `HugeAllocator`, by segment.
    @Benchmark
    public MemorySegment hugeSegment(OnHugePages on, HugeBlocks live) {
        int i = next();
        on.allocator.free(live.segments[i]);
        MemorySegment block = on.allocator.allocate(size);
        block.set(LONG, 0, i);
        return live.segments[i] = block;
    }

    /// Live blocks of a thread, from malloc.
    @State(Scope.Thread)
    public static class MallocBlocks {
        private final long[] addresses = new long[LIVE];

        @Setup
        public void setup(Allocate of) throws Throwable {
            for (int i = 0; i < LIVE; i++) {
                addresses[i] = (long) RawMemory.MALLOC.invokeExact((long) of.size);
            }
        }

        @TearDown
        public void tearDown() throws Throwable {
            for (long address : addresses) {
                RawMemory.FREE.invokeExact(address);
            }
        }
    }

    /// malloc and free of the C library, by address.
    @Benchmark
    public long malloc(MallocBlocks live) throws Throwable {
        int i = next();
        RawMemory.FREE.invokeExact(live.addresses[i]);
        long address = (long) RawMemory.MALLOC.invokeExact((long) size);
        RawMemory.ALL.set(LONG, address, i);
        return live.addresses[i] = address;
    }

    /// malloc and free of the C library, by segment.
    @Benchmark
    public MemorySegment mallocSegment(MallocSegments live) throws Throwable {
        int i = next();
        RawMemory.FREE.invokeExact(live.segments[i].address());
        long address = (long) RawMemory.MALLOC.invokeExact((long) size);
        MemorySegment block = RawMemory.ALL.asSlice(address, size);
        block.set(LONG, 0, i);
        return live.segments[i] = block;
    }

    /// Live blocks of a thread, from malloc, as segments.
    @State(Scope.Thread)
    public static class MallocSegments {
        private final MemorySegment[] segments = new MemorySegment[LIVE];

        @Setup
        public void setup(Allocate of) throws Throwable {
            for (int i = 0; i < LIVE; i++) {
                segments[i] = RawMemory.ALL.asSlice((long) RawMemory.MALLOC.invokeExact((long) of.size), of.size);
            }
        }

        @TearDown
        public void tearDown() throws Throwable {
            for (MemorySegment segment : segments) {
                RawMemory.FREE.invokeExact(segment.address());
            }
        }
    }

    /// malloc and free by critical calls: without the thread's transition between Java and C.
    @Benchmark
    public long mallocCritical(MallocBlocks live) throws Throwable {
        int i = next();
        RawMemory.FREE_CRITICAL.invokeExact(live.addresses[i]);
        long address = (long) RawMemory.MALLOC_CRITICAL.invokeExact((long) size);
        RawMemory.ALL.set(LONG, address, i);
        return live.addresses[i] = address;
    }

    /// Live blocks of a thread, each with its own arena.
    @State(Scope.Thread)
    public static class ArenaBlocks {
        private final Arena[] arenas = new Arena[LIVE];

        @Setup
        public void setup() {
            for (int i = 0; i < LIVE; i++) {
                arenas[i] = Arena.ofShared();
            }
        }
    }

    /// An arena per block: the JDK's own way to free blocks one by one from any thread.
    @Benchmark
    public MemorySegment arenaOfShared(ArenaBlocks live) {
        int i = next();
        live.arenas[i].close();
        Arena arena = Arena.ofShared();
        MemorySegment block = arena.allocate(size, 16);
        block.set(LONG, 0, i);
        live.arenas[i] = arena;
        return block;
    }
}
