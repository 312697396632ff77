package io.hugewise.memory;

/// Free slots that threads take without a lock: a cell for each size class and stripe.
///
/// A cell is one long: the place of a word of 32 slots, a number from which its user computes the offset of a slot,
/// and which of the slots are free in the cell. A slot is taken by one atomic operation, by any thread. A thread normally
/// uses the stripe of its last call; if another thread gets in its way, it goes on with the next stripe. Nothing belongs
/// to a thread, so idle and ended threads hold nothing.
///
/// ```text
///  63  62            32 31        0
/// │ T │ place + 1     │ free slots │     0: no word
/// ```
///
/// `T` is set while slots move between the cell and the words; then no slot in the cell is free.
final class Cells {
    /// A cell that has another word, or none.
    static final long ELSEWHERE = 0;

    private static final long TRANSIT = 1L << 63;
    /// Elements of 128 bytes: two cache lines, which are often fetched together.
    private static final int PADDING = 16;

    private static final int HINTS = 1024;

    private final long[] cells;
    /// The cells at the last call of [#isIdle] for each.
    private long[] before = {};
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

    /// Takes a slot; returns its place · 32 + its bit, -1 if the cell has none.
    long take(int sizeClass) {
        int stripe = stripe();
        for (int tries = 0; ; tries++) {
            int index = index(sizeClass, stripe);
            long cell = Atomics.get(cells, index);
            if ((cell & Words.FREE) == 0) {
                return -1;
            }
            if (Atomics.change(cells, index, cell, cell & (cell - 1))) {
                return slot(cell);
            }
            // The first failure may have no cause.
            stripe = tries > 0 ? nextStripe(stripe) : stripe;
        }
    }

    private static long slot(long cell) {
        return (((cell >>> Words.SLOTS) - 1) << Words.SLOTS_LOG2) + Long.numberOfTrailingZeros(cell);
    }

    private static long placeOf(long cell) {
        return ((cell & ~TRANSIT) >>> Words.SLOTS) - 1;
    }

    /// The cell if it has the word at this place, otherwise [#ELSEWHERE]; waits while slots are moved.
    long of(int sizeClass, int stripe, long place) {
        int index = index(sizeClass, stripe);
        for (int spins = 0; ; spins++) {
            long cell = Atomics.get(cells, index);
            if (placeOf(cell) != place) {
                return ELSEWHERE;
            }
            if (cell >= 0) {
                return cell;
            }
            SpinLock.pause(spins);
        }
    }

    /// Frees a slot into a cell, if it is still as it was read.
    boolean give(int sizeClass, int stripe, long read, long bit) {
        return Atomics.change(cells, index(sizeClass, stripe), read, read | bit);
    }

    /// The place of a cell; -1 if it has none.
    long place(int sizeClass, int stripe) {
        return placeOf(Atomics.get(cells, index(sizeClass, stripe)));
    }

    /// Whether a cell has a word, and is as it was at the last call. One thread at a time.
    boolean isIdle(int sizeClass, int stripe) {
        if (before.length == 0) {
            before = new long[cells.length];
        }
        int index = index(sizeClass, stripe);
        long cell = Atomics.get(cells, index);
        boolean isIdle = cell != ELSEWHERE && cell == before[index];
        before[index] = cell;
        return isIdle;
    }

    /// Free slots in all cells of a class.
    int free(int sizeClass) {
        int free = 0;
        for (int stripe = 0; stripe < stripes; stripe++) {
            free += Long.bitCount(Atomics.get(cells, index(sizeClass, stripe)) & Words.FREE);
        }
        return free;
    }

    /// Begins to move slots of a word into a cell that has no free slots. The class is locked.
    void begin(int sizeClass, int stripe, long place) {
        Atomics.put(cells, index(sizeClass, stripe), TRANSIT | (place + 1) << Words.SLOTS);
    }

    /// Ends it.
    void end(int sizeClass, int stripe, long place, long free) {
        Atomics.put(cells, index(sizeClass, stripe), (place + 1) << Words.SLOTS | free);
    }

    /// Takes all free slots out of a cell that has a word, and begins to move them; returns them as bits. The class is
    /// locked.
    long empty(int sizeClass, int stripe) {
        int index = index(sizeClass, stripe);
        while (true) {
            long cell = Atomics.get(cells, index);
            if (cell == ELSEWHERE || Atomics.change(cells, index, cell, TRANSIT | (cell & ~Words.FREE))) {
                return cell & Words.FREE;
            }
        }
    }

    /// Leaves a cell without a word. The class is locked.
    void clear(int sizeClass, int stripe) {
        Atomics.put(cells, index(sizeClass, stripe), 0);
    }
}
