package io.hugewise.benchmarks.old;

import java.lang.reflect.Field;
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
import sun.misc.Unsafe;

/// The benchmark of `Allocate` with `Unsafe.allocateMemory`, for JVMs that still have it.
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(1)
public class UnsafeAllocate {
    /// Number of live blocks, as in `Allocate`.
    private static final int LIVE = 256;

    private static final Unsafe UNSAFE = find();

    @Param({"16", "64", "256", "1024", "4096", "16384", "65536"})
    int size;

    private final long[] blocks = new long[LIVE];
    private int order;

    private static Unsafe find() {
        try {
            Field field = Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return (Unsafe) field.get(null);
        } catch (ReflectiveOperationException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    @Setup
    public void setup() {
        for (int i = 0; i < LIVE; i++) {
            blocks[i] = UNSAFE.allocateMemory(size);
        }
    }

    @TearDown
    public void tearDown() {
        for (long block : blocks) {
            UNSAFE.freeMemory(block);
        }
    }

    @Benchmark
    public long unsafe() {
        order = order * 1664525 + 1013904223;
        int i = order >>> 24;
        UNSAFE.freeMemory(blocks[i]);
        long block = UNSAFE.allocateMemory(size);
        UNSAFE.putLong(block, i);
        return blocks[i] = block;
    }
}
