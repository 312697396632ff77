package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.function.LongSupplier;

/// Returns pages without blocks to the kernel (`MADV_DONTNEED`): those that have been free for a period.
///
/// Threads that free units do the work, so there is no background thread; if none is freed, nothing is returned.
final class Decommit {
    /// Frees between two looks at the clock.
    private static final int FREES = 64;
    private static final int DONT_NEED = 4;
    private static final int CHUNK_BYTES = Units.CHUNK * Units.UNIT;

    private final MemorySegment memory;
    private final int chunksOfPage;
    private final long period;
    private final LongSupplier clock;
    private final SpinLock lock = new SpinLock();
    /// Units that were idle when the last period ended, by chunk.
    private long[] idleBefore = {};
    private int frees;
    private boolean isRefused;
    private volatile long ended;

    /// @param pageSize page size of the memory; units are returned one by one if it is smaller than a chunk
    /// @param period in the unit of the clock
    Decommit(MemorySegment memory, long pageSize, long period, LongSupplier clock) {
        this.memory = memory;
        this.chunksOfPage = (int) (pageSize / CHUNK_BYTES);
        this.period = period;
        this.clock = clock;
        this.ended = clock.getAsLong();
    }

    /// Units became free.
    void released(Units units) {
        if ((++frees & FREES - 1) == 0 && clock.getAsLong() - ended >= period && lock.tryLock()) {
            try {
                returnIdle(units, false);
                ended = clock.getAsLong();
            } finally {
                lock.unlock();
            }
        }
    }

    /// Returns all pages without blocks.
    void all(Units units) {
        lock.lock();
        try {
            returnIdle(units, true);
        } finally {
            lock.unlock();
        }
    }

    private void returnIdle(Units units, boolean all) {
        int chunks = isRefused ? 0 : units.chunks();
        if (idleBefore.length == 0) {
            idleBefore = new long[chunks];
        }
        int step = Math.max(1, chunksOfPage);
        for (int chunk = 0; chunk < chunks; chunk += step) {
            if (chunksOfPage == 0) {
                long idle = units.idle(chunk);
                units.untouch(chunk, all ? idle : idle & idleBefore[chunk], (first, count) -> advise(units, first, count));
                idleBefore[chunk] = units.idle(chunk);
            } else {
                boolean isIdle = isIdle(units, chunk);
                if (isIdle && (all || idleBefore[chunk] != 0)) {
                    units.untouch(chunk, step, (first, count) -> advise(units, first, count));
                    isIdle = false;
                }
                idleBefore[chunk] = isIdle ? 1 : 0;
            }
        }
    }

    /// Whether a page has no block, and may be resident.
    private boolean isIdle(Units units, int chunk) {
        long touched = 0;
        for (int i = chunk; i < chunk + chunksOfPage; i++) {
            if (i >= units.chunks() || !units.isFree(i * Units.CHUNK)) {
                return false;
            }
            touched |= units.idle(i);
        }
        return touched != 0;
    }

    /// False if the kernel refuses, as it does for locked memory: then its pages stay, and nothing is tried again.
    private boolean advise(Units units, int first, int count) {
        long offset = ((long) first << Units.UNIT_LOG2) - units.skew;
        MemorySegment pages = memory.asSlice(offset, (long) count << Units.UNIT_LOG2);
        try {
            isRefused = isRefused || (int) Call.MADVISE.invokeExact(pages, pages.byteSize(), DONT_NEED) != 0;
            return !isRefused;
        } catch (Throwable error) {
            throw Libhugewise.thrown(error);
        }
    }

    /// Linked when memory is returned for the first time.
    private static final class Call {
        static final MethodHandle MADVISE = Linker.nativeLinker()
                .downcallHandle(
                        Linker.nativeLinker().defaultLookup().findOrThrow("madvise"),
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT));
    }
}
