package io.hugewise.memory;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/// Blocks of any size in one memory segment: slots of spans, runs of units, and larger blocks.
///
/// A block is identified by its offset in the memory. Metadata is outside the memory.
final class Blocks {
    /// Memory for each stripe.
    private static final int STRIPE_BYTES = 32 << 20;
    private static final int MOST_STRIPES = 64;
    /// A request that failed is tried in full again after so many others, even if nothing seems to have become free.
    private static final int FULL_TRIES = 1024;
    private static final long NONE_FAILED = -1;

    private final long pageSize;
    private final Units units;
    private final Scarcity scarcity;
    private final @Nullable Decommit decommit;
    private final Slots slots;
    private final Runs runs;
    /// The events of a class when a request failed.
    private final long[] failed = new long[SizeClasses.COUNT];
    private final int[] failures = new int[SizeClasses.COUNT];
    /// Releases when a larger block failed, and its units.
    private volatile long failedLarge = NONE_FAILED;

    /// @param address multiple of a unit
    /// @param pageSize page size of the memory
    /// @param isFresh whether the memory was not written yet
    Blocks(long address, long bytes, long pageSize, boolean isFresh, @Nullable Decommit decommit) {
        this.pageSize = pageSize;
        this.units = new Units(address, bytes, isFresh);
        this.scarcity = units.scarcity();
        this.decommit = decommit;
        int most = Math.min(MOST_STRIPES, Integer.highestOneBit(4 * Runtime.getRuntime().availableProcessors()));
        int stripes = Math.clamp(Long.highestOneBit(bytes / STRIPE_BYTES), 1, most);
        this.slots = new Slots(units, bytes, stripes);
        this.runs = new Runs(units, slots.caches(), stripes);
        Arrays.fill(failed, NONE_FAILED);
    }

    SlotFastPath fastPath() {
        return slots.fastPath();
    }

    /// Takes a block of a class; returns its offset in bytes, or -1 if memory is full.
    long take(int sizeClass) {
        long offset = SizeClasses.isRun(sizeClass) ? offsetOf(runs.take(sizeClass)) : slots.take(sizeClass);
        offset = offset < 0 ? takeUnlessFull(sizeClass) : offset;
        return offset < 0 ? -1 : offset - units.skew;
    }

    /// Fails at once if nothing has become free since the last time.
    private long takeUnlessFull(int sizeClass) {
        if (events(sizeClass) == failed[sizeClass] && (++failures[sizeClass] & FULL_TRIES - 1) != 0) {
            return -1;
        }
        long offset = takeOrRefill(sizeClass);
        if (offset < 0) {
            // Again, with the memory of all caches and empty spans.
            scarcity.beginAttempt();
            slots.reclaim();
            long events = events(sizeClass);
            offset = takeOrRefill(sizeClass);
            failed[sizeClass] = offset < 0 ? events : NONE_FAILED;
            scarcity.endAttempt(offset < 0);
        }
        return offset;
    }

    private long takeOrRefill(int sizeClass) {
        return SizeClasses.isRun(sizeClass)
                ? offsetOf(runs.takeUnits(sizeClass))
                : slots.refill(sizeClass);
    }

    private static long offsetOf(int unit) {
        return (long) unit << Units.UNIT_LOG2;
    }

    private long events(int sizeClass) {
        return (long) scarcity.releases() << 32 | (slots.events(sizeClass) & 0xFFFF_FFFFL);
    }

    /// Takes a block of whole units; returns its offset in bytes, or -1 if no run is left.
    ///
    /// @param zeroed memory that is zeroed where the block is; null if it need not be
    long takeLarge(long bytes, long alignment, @Nullable MemorySegment zeroed) {
        // A block of one unit has no second unit for its length.
        long count = Math.max(2, (bytes + Units.UNIT - 1) >>> Units.UNIT_LOG2);
        if (bytes < 0 || count > units.count()) {
            return -1;
        }
        long aligned = Math.max(1, alignment >>> Units.UNIT_LOG2);
        int unit = takeLargeUnits((int) count, aligned);
        if (unit < 0) {
            return -1;
        }
        boolean isTouched = false;
        try {
            touch(unit, (int) count, zeroed);
            isTouched = true;
        } finally {
            // The heap may have no memory for what it needs.
            if (!isTouched) {
                units.giveLong(unit, (int) count);
            }
        }
        units.setInfo(unit + 1, UnitInfo.length((int) count));
        units.setInfo(unit, UnitInfo.LARGE);
        return ((long) unit << Units.UNIT_LOG2) - units.skew;
    }

    private void touch(int unit, int count, @Nullable MemorySegment zeroed) {
        units.touchLong(unit, count, (first, length) -> {
            if (zeroed != null) {
                long offset = ((long) first << Units.UNIT_LOG2) - units.skew;
                zeroed.asSlice(offset, (long) length << Units.UNIT_LOG2).fill((byte) 0);
            }
            return true;
        });
    }

    private int takeLargeUnits(int count, long alignment) {
        long known = failedLarge;
        if ((int) (known >>> 32) == scarcity.releases() && count >= (int) known && known != NONE_FAILED) {
            return -1;
        }
        int unit = units.takeLong(count, alignment);
        if (unit < 0) {
            scarcity.beginAttempt();
            slots.reclaim();
            int releases = scarcity.releases();
            unit = units.takeLong(count, alignment);
            if (unit < 0 && alignment == 1) {
                failedLarge = (long) releases << 32 | count;
            }
            scarcity.endAttempt(unit < 0);
        }
        return unit;
    }

    /// Frees a block.
    ///
    /// @throws IllegalArgumentException if no block starts there
    /// @throws IllegalStateException if it was freed already
    void give(long offset) {
        long from = offset + units.skew;
        int unit = unitOf(from);
        int info = units.info(unit);
        boolean given = UnitInfo.isOfSlots(info) ? slots.give(unit, from) : giveUnits(unit, info, from);
        if (!given) {
            throw new IllegalStateException("the block at offset " + offset + " was freed already");
        }
    }

    /// Called after each free.
    void afterFree() {
        if (decommit != null) {
            decommit.freed(units, slots);
        }
    }

    private boolean giveUnits(int unit, int info, long from) {
        return switch (UnitInfo.kind(info)) {
            case UnitInfo.RUN -> startsUnit(from) && runs.give(unit, info);
            case UnitInfo.LARGE -> startsUnit(from) && giveLarge(unit, info);
            default -> throw noBlock();
        };
    }

    private static boolean startsUnit(long from) {
        if ((from & Units.UNIT - 1) != 0) {
            throw noBlock();
        }
        return true;
    }

    private boolean giveLarge(int unit, int info) {
        int count = UnitInfo.lengthOf(units.info(unit + 1));
        if (!units.changeInfo(unit, info, 0)) {
            return false;
        }
        units.setInfo(unit + 1, 0);
        units.giveLong(unit, count);
        return true;
    }

    /// Size of the block at an offset, in bytes.
    ///
    /// @throws IllegalArgumentException if no allocated block starts there
    long sizeAt(long offset) {
        long from = offset + units.skew;
        int unit = unitOf(from);
        int info = units.info(unit);
        boolean isStart = (from & Units.UNIT - 1) == 0;
        int kind = UnitInfo.kind(info);
        if (kind == UnitInfo.SLOTS && slots.isTaken(unit, info, from)) {
            return SizeClasses.size(UnitInfo.sizeClass(info));
        }
        if (kind == UnitInfo.RUN && isStart && (info & UnitInfo.CACHED) == 0) {
            return (long) UnitInfo.units(info) << Units.UNIT_LOG2;
        }
        if (kind == UnitInfo.LARGE && isStart) {
            return (long) UnitInfo.lengthOf(units.info(unit + 1)) << Units.UNIT_LOG2;
        }
        throw noBlock();
    }

    private int unitOf(long from) {
        // Units before the memory have no block.
        if (from >>> Units.UNIT_LOG2 >= units.count()) {
            throw noBlock();
        }
        return (int) (from >>> Units.UNIT_LOG2);
    }

    static IllegalArgumentException noBlock() {
        return new IllegalArgumentException("no block starts at this offset");
    }

    /// Bytes of blocks in use: a moment's value, exact if no other thread takes or frees one.
    long live() {
        long live = 0;
        for (int unit = 0; unit < units.count(); unit += units.isFree(unit) ? Units.CHUNK : 1) {
            live += liveAt(unit, units.info(unit));
        }
        return live;
    }

    private long liveAt(int unit, int info) {
        return switch (UnitInfo.kind(info)) {
            case UnitInfo.RUN -> (info & UnitInfo.CACHED) == 0 ? (long) UnitInfo.units(info) << Units.UNIT_LOG2 : 0;
            case UnitInfo.LARGE -> (long) UnitInfo.lengthOf(units.info(unit + 1)) << Units.UNIT_LOG2;
            case UnitInfo.SLOTS -> UnitInfo.back(info) == 0 ? slots.taken(unit, info) : 0;
            default -> 0;
        };
    }

    /// Puts free slots within reach of all threads, and returns pages without blocks to the kernel.
    void trim() {
        slots.reclaim();
        if (decommit != null) {
            decommit.all(units, slots);
        }
    }

    /// Bytes of the pages that had blocks and were not returned.
    long touched() {
        return units.touched(pageSize);
    }

    long held() {
        return units.held();
    }

    long reached() {
        return units.reached();
    }

    long longestFree() {
        return units.longestFree();
    }
}
