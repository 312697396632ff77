package io.hugewise.cache;

import io.hugewise.memory.internal.Pause;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.TimeUnit;

/// Accesses to memory that are under way, counted in stripes, so that memory is reused only when none is left that
/// began before.
///
/// Each stripe has two counters, of which accesses use the one of the current epoch. To wait for all accesses that
/// have begun, the epoch is advanced, and its old counters are awaited: later accesses use the others. A stripe belongs
/// to a thread's number, not to a CPU, so virtual threads may change their carrier in between.
final class Pins {
    private static final VarHandle CELL = MethodHandles.arrayElementVarHandle(long[].class);
    private static final int STRIPES =
            Integer.highestOneBit(Math.max(8, 8 * Runtime.getRuntime().availableProcessors() - 1));
    /// Longs between the cells of two stripes: 128 bytes, because CPUs fetch pairs of lines.
    private static final int DISTANCE = 16;
    private static final int CLOSED = -1;
    private static final long SLEEP_NANOS = 50_000;

    private final long[] cells = new long[(STRIPES + 1) * DISTANCE];
    private volatile int epoch;

    /// Begins an access.
    ///
    /// @return the cell for [#unpin]
    /// @throws IllegalStateException if the memory is closed
    int pin() {
        int stripe = ((int) Thread.currentThread().threadId() & STRIPES - 1) + 1;
        while (true) {
            int current = epoch;
            checkOpen(current);
            int cell = stripe * DISTANCE + (current & 1);
            CELL.getAndAdd(cells, cell, 1L);
            if (epoch == current) {
                return cell;
            }
            unpin(cell);
        }
    }

    /// A number that stays the same as long as no memory is reused that an access may use that has begun with it.
    int epoch() {
        return epoch;
    }

    /// @throws IllegalStateException if the memory is closed
    void checkOpen() {
        checkOpen(epoch);
    }

    private static void checkOpen(int current) {
        if (current == CLOSED) {
            throw new IllegalStateException("the cache is closed");
        }
    }

    void unpin(int cell) {
        CELL.getAndAdd(cells, cell, -1L);
    }

    /// Waits until all accesses have ended that began before. One thread at a time may call it.
    ///
    /// @return whether they have ended; if not, the next call waits for them, too
    boolean await(long timeoutNanos) {
        long end = System.nanoTime() + timeoutNanos;
        // Those of an earlier call that timed out.
        if (!isEmpty(epoch + 1 & 1, end)) {
            return false;
        }
        int before = epoch;
        epoch = before + 1 & Integer.MAX_VALUE;
        return isEmpty(before & 1, end);
    }

    /// Refuses new accesses, and waits for those under way.
    void close() {
        epoch = CLOSED;
        while (!isEmpty(0, Long.MAX_VALUE) || !isEmpty(1, Long.MAX_VALUE)) {
            Thread.onSpinWait();
        }
    }

    private boolean isEmpty(int parity, long end) {
        for (int stripe = 1; stripe <= STRIPES; stripe++) {
            for (int tries = 0; (long) CELL.getVolatile(cells, stripe * DISTANCE + parity) != 0; tries++) {
                if (tries < 100) {
                    Thread.onSpinWait();
                } else if (System.nanoTime() - end > 0 && end != Long.MAX_VALUE) {
                    return false;
                } else {
                    Pause.nanos(SLEEP_NANOS);
                }
            }
        }
        return true;
    }

    /// {@return how long an eviction waits for reads that are under way}
    static long patience() {
        return TimeUnit.MILLISECONDS.toNanos(100);
    }
}
