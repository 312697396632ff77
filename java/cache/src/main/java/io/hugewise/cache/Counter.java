package io.hugewise.cache;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/// A sum that many threads add to. Unlike a [java.util.concurrent.atomic.LongAdder], it takes no memory of the heap later, so
/// no addition can fail after the change that it counts.
final class Counter {
    private static final VarHandle CELL = MethodHandles.arrayElementVarHandle(long[].class);
    private static final int STRIPES = Integer.highestOneBit(Math.max(8, 4 * Runtime.getRuntime().availableProcessors()));
    /// Longs between two cells: 128 bytes, because CPUs fetch pairs of lines.
    private static final int DISTANCE = 16;

    private final long[] cells = new long[(STRIPES + 1) * DISTANCE];

    void add(long number) {
        int stripe = ((int) Thread.currentThread().threadId() & STRIPES - 1) + 1;
        CELL.getAndAdd(cells, stripe * DISTANCE, number);
    }

    /// The sum; while other threads add, that of a moment.
    long sum() {
        long sum = 0;
        for (int stripe = 1; stripe <= STRIPES; stripe++) {
            sum += (long) CELL.getVolatile(cells, stripe * DISTANCE);
        }
        return sum;
    }
}
