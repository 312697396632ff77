package io.hugewise.memory;

/// Free slots that threads take without a lock: a cell for each size class and stripe.
///
/// A cell is one long: the number of a group of 24 slots, and which of them are free. A slot is taken by one
/// atomic operation, by any thread. A thread normally uses the stripe of its last call; if another thread gets in
/// its way, it goes on with the next stripe. Nothing belongs to a thread, so idle and ended threads hold nothing.
///
/// ```text
///  63  62            24 23        0
/// │ T │ group + 1     │ free slots │     0: no group
/// ```
///
/// `T` is set while slots move between the cell and the words; then no slot in the cell is free.
final class Cells {
    /// Slots of a group.
    static final int GROUP = 24;

    static final long FREE = (1L << GROUP) - 1;
    private static final long TRANSIT = 1L << 63;
    /// Elements of 128 bytes: two cache lines, which are often fetched together.
    private static final int PADDING = 16;

    private static final int HINTS = 1024;

    private final long[] cells;
    private final int row;
    private final int stripes;
    /// The stripe of threads, by the low bits of their ids.
    private final short[] hints = new short[HINTS];

    /// @param stripes power of two
    Cells(int classes, int stripes) {
        this.row = (classes + PADDING - 1 & -PADDING) + PADDING;
        this.cells = new long[row * stripes + PADDING];
        this.stripes = stripes;
        for (int i = 0; i < HINTS; i++) {
            hints[i] = (short) (i & stripes - 1);
        }
    }

    int stripes() {
        return stripes;
    }

    /// The stripe of the calling thread.
    int stripe() {
        return hints[(int) Thread.currentThread().threadId() & HINTS - 1];
    }

    private int nextStripe(int stripe) {
        int next = stripe + 1 & stripes - 1;
        hints[(int) Thread.currentThread().threadId() & HINTS - 1] = (short) next;
        return next;
    }

    private int index(int sizeClass, int stripe) {
        return stripe * row + PADDING + sizeClass;
    }

    /// Takes a slot; returns its number, -1 if the cell has none.
    long take(int sizeClass) {
        int stripe = stripe();
        for (int tries = 0; ; tries++) {
            int index = index(sizeClass, stripe);
            long cell = Atomics.get(cells, index);
            if ((cell & FREE) == 0) {
                return -1;
            }
            if (Atomics.change(cells, index, cell, cell & (cell - 1))) {
                return slot(cell);
            }
            // The first failure may have no cause.
            stripe = tries > 0 ? nextStripe(stripe) : stripe;
        }
    }

    /// Takes a slot of this stripe; returns its number, -1 if the cell has none.
    long take(int sizeClass, int stripe) {
        int index = index(sizeClass, stripe);
        while (true) {
            long cell = Atomics.get(cells, index);
            if ((cell & FREE) == 0) {
                return -1;
            }
            if (Atomics.change(cells, index, cell, cell & (cell - 1))) {
                return slot(cell);
            }
        }
    }

    private static long slot(long cell) {
        return (cell >>> GROUP) * GROUP - GROUP + Long.numberOfTrailingZeros(cell);
    }

    /// The group of a cell; -1 if it has none.
    long group(int sizeClass, int stripe) {
        return ((Atomics.get(cells, index(sizeClass, stripe)) & ~TRANSIT) >>> GROUP) - 1;
    }

    /// The free slots of a word that are in a cell, as bits of the word; waits while slots are moved.
    long free(int sizeClass, int stripe, long word) {
        for (int spins = 0; ; spins++) {
            long cell = Atomics.get(cells, index(sizeClass, stripe));
            long group = ((cell & ~TRANSIT) >>> GROUP) - 1;
            if (group >> 1 != word) {
                return 0;
            }
            if (cell >= 0) {
                return (cell & FREE) << ((group & 1) * GROUP);
            }
            SpinLock.pause(spins);
        }
    }

    /// Free slots in all cells of a class.
    int free(int sizeClass) {
        int free = 0;
        for (int stripe = 0; stripe < stripes; stripe++) {
            free += Long.bitCount(Atomics.get(cells, index(sizeClass, stripe)) & FREE);
        }
        return free;
    }

    /// The lowest bits, as many as are allowed.
    static long lowest(long bits, int most) {
        long kept = bits;
        for (int more = Long.bitCount(bits) - most; more > 0; more--) {
            kept ^= Long.highestOneBit(kept);
        }
        return kept;
    }

    /// Begins to move slots of a group into a cell that has no free slots. The class is locked.
    void begin(int sizeClass, int stripe, long group) {
        Atomics.put(cells, index(sizeClass, stripe), TRANSIT | (group + 1) << GROUP);
    }

    /// Ends it.
    void end(int sizeClass, int stripe, long group, long free) {
        Atomics.put(cells, index(sizeClass, stripe), (group + 1) << GROUP | free);
    }

    /// Takes all free slots out of a cell, and begins to move them; returns them as bits. The class is locked.
    long empty(int sizeClass, int stripe) {
        int index = index(sizeClass, stripe);
        while (true) {
            long cell = Atomics.get(cells, index);
            if ((cell & FREE) == 0 || Atomics.change(cells, index, cell, TRANSIT | (cell & ~FREE))) {
                return cell & FREE;
            }
        }
    }

    /// Leaves a cell without a group. The class is locked.
    void clear(int sizeClass, int stripe) {
        Atomics.put(cells, index(sizeClass, stripe), 0);
    }
}
