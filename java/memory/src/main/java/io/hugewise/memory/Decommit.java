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
/// Threads that free blocks do the work, so there is no background thread; if none is freed, nothing is returned.
final class Decommit {
    /// Frees of the threads that share a counter between two looks at the clock.
    private static final int FREES = 64;
    private static final int COUNTERS = 64;
    private static final int PADDING = 16;
    private static final int DONT_NEED = 4;
    private static final int CHUNK_BYTES = Units.CHUNK * Units.UNIT;
    private static final MethodHandle MADVISE = Linker.nativeLinker()
            .downcallHandle(
                    Linker.nativeLinker().defaultLookup().findOrThrow("madvise"),
                    FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT));

    private final MemorySegment memory;
    /// 0 for pages of a unit.
    private final int chunksOfPage;
    private final long period;
    private final LongSupplier clock;
    private final SpinLock lock = new SpinLock();
    private final int[] frees = new int[COUNTERS * PADDING];
    /// Units that were idle when the last period ended, by chunk; of larger pages, one bit in the first chunk.
    private long[] idleBefore = {};
    private boolean isRefused;
    private volatile long ended;

    /// @param pageSize page size of the memory
    /// @param period in the unit of the clock
    Decommit(MemorySegment memory, long pageSize, long period, LongSupplier clock) {
        this.memory = memory;
        this.chunksOfPage = (int) (pageSize / CHUNK_BYTES);
        this.period = period;
        this.clock = clock;
        this.ended = clock.getAsLong();
    }

    /// A block was freed by the calling thread, which holds no lock.
    void freed(Units units, Slots slots) {
        int counter = ((int) Thread.currentThread().threadId() & COUNTERS - 1) * PADDING;
        if ((++frees[counter] & FREES - 1) == 0 && clock.getAsLong() - ended >= period && lock.tryLock()) {
            try {
                returnIdle(units, slots, false);
                ended = clock.getAsLong();
            } catch (OutOfMemoryError _) {
                // Of the heap. The block is free, and pages are returned at a later time.
            } finally {
                lock.unlock();
            }
        }
    }

    /// Returns all pages without blocks.
    void all(Units units, Slots slots) {
        lock.lock();
        try {
            returnIdle(units, slots, true);
        } finally {
            lock.unlock();
        }
    }

    private void returnIdle(Units units, Slots slots, boolean all) {
        int chunks = isRefused ? 0 : units.chunks();
        if (idleBefore.length == 0) {
            idleBefore = new long[chunks];
        }
        slots.drain();
        Units.Run advise = (first, count) -> advise(units, first, count);
        for (int chunk = 0; chunk < chunks; chunk += Math.max(1, chunksOfPage)) {
            if (chunksOfPage > 0) {
                returnPage(units, chunk, all, advise);
            } else {
                long wanted = all ? -1 : idleBefore[chunk];
                units.untouch(chunk, wanted, advise);
                idleBefore[chunk] = units.idle(chunk) | slots.untouch(chunk * Units.CHUNK, wanted, advise);
            }
        }
    }

    private void returnPage(Units units, int chunk, boolean all, Units.Run advise) {
        boolean isIdle = isIdle(units, chunk);
        boolean isReturned = isIdle && (all || idleBefore[chunk] != 0);
        if (isReturned) {
            units.untouch(chunk, chunksOfPage, advise);
        }
        idleBefore[chunk] = isIdle && !isReturned ? 1 : 0;
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
            isRefused = isRefused || (int) MADVISE.invokeExact(pages, pages.byteSize(), DONT_NEED) != 0;
            return !isRefused;
        } catch (Throwable error) {
            throw Libhugewise.thrown(error);
        }
    }
}
