package io.hugewise.memory;

/// Blocks of the classes whose sizes are multiples of a unit: runs of units.
///
/// A free run is in the cache of the thread that freed it, as far as this may keep more, or it is free units.
final class Runs {
    /// Elements of 64 bytes.
    private static final int PADDING = 16;

    private final Units units;
    private final Scarcity scarcity;
    private final SlotCaches caches;
    private final int stripes;
    /// For each stripe and length of a run: a unit of the chunk in which a thread of the stripe took or freed one last. A
    /// hint, read and written without synchronization.
    private final int[] near;

    Runs(Units units, SlotCaches caches, int stripes) {
        this.units = units;
        this.scarcity = units.scarcity();
        this.caches = caches;
        this.stripes = stripes;
        this.near = new int[(stripes + 1) * PADDING];
    }

    private static int unitsOf(int sizeClass) {
        return SizeClasses.size(sizeClass) >>> Units.UNIT_LOG2;
    }

    /// Takes a run out of the cache of the calling thread; returns its first unit, -1 if there is none.
    int take(int sizeClass) {
        SlotCache cache = caches.enter();
        int unit;
        try {
            unit = cache.takeRun(sizeClass);
        } finally {
            cache.leave();
        }
        if (unit >= 0) {
            units.setOwnInfo(unit, UnitInfo.run(sizeClass, unitsOf(sizeClass)));
        }
        return unit;
    }

    /// Takes a run of free units; returns the first one, -1 if there is none.
    int takeUnits(int sizeClass) {
        int count = unitsOf(sizeClass);
        int last = indexOfNear(count);
        int unit = units.takeRun(count, near[last]);
        if (unit >= 0) {
            near[last] = unit;
            units.touch(unit, count);
            units.setOwnInfo(unit, UnitInfo.run(sizeClass, count));
        }
        return unit;
    }

    /// Runs of 1 to 8, 10, 12, 14 and 16 units.
    private int indexOfNear(int count) {
        int length = count <= 8 ? count : 4 + count / 2;
        return ((int) Thread.currentThread().threadId() & (stripes - 1)) * PADDING + length;
    }

    /// Frees a run; returns false if it was freed already.
    ///
    /// @param info what was read of its first unit
    boolean give(int unit, int info) {
        if ((info & UnitInfo.CACHED) != 0 || !units.changeInfo(unit, info, info | UnitInfo.CACHED)) {
            return false;
        }
        // While memory is full, free units are of more use to others.
        if (scarcity.isScarce() || !giveToCache(unit, UnitInfo.sizeClass(info))) {
            int count = UnitInfo.units(info);
            units.setInfo(unit, 0);
            units.give(unit, count);
            near[indexOfNear(count)] = unit;
        } else {
            // A request that failed meanwhile would find it.
            scarcity.noteRelease();
        }
        return true;
    }

    private boolean giveToCache(int unit, int sizeClass) {
        SlotCache cache = caches.enter();
        try {
            if (cache.room() >= SizeClasses.size(sizeClass) || caches.grant(cache, SizeClasses.size(sizeClass))) {
                cache.addRun(sizeClass, unit);
                return true;
            }
        } finally {
            cache.leave();
        }
        caches.rebalance();
        return false;
    }
}
