package io.hugewise.memory;

import java.util.Arrays;

/// Numbered blocks of one size: the slots of one sequence of words, taken through cells as in [Slots].
final class EqualBlocks {
    private static final int NO_CELL = 0;

    private final int blocks;
    private final Words words;
    private final Cells cells;
    private final int quota;
    /// Whether blocks are freed into the cell that has their word: not if the lowest free block is wanted.
    private final boolean intoCells;
    private final SpinLock lock = new SpinLock();
    /// A bit for each word that may have a free slot.
    private final long[] candidates;
    /// The stripe plus 1 whose cell has slots of a word.
    private final int[] cellOf;

    EqualBlocks(int blocks, int stripes, int quota) {
        this.blocks = blocks;
        int count = (blocks + Words.SLOTS - 1) / Words.SLOTS;
        this.words = new Words(count);
        this.cells = new Cells(1, stripes);
        this.quota = quota;
        this.intoCells = quota > 1;
        this.candidates = new long[(count + 63) / 64];
        this.cellOf = new int[count];
        Arrays.fill(candidates, -1);
        for (int word = 0; word < count; word++) {
            int left = blocks - word * Words.SLOTS;
            words.reset(word, left >= Words.SLOTS ? Words.FREE : (1L << left) - 1);
        }
    }

    int count() {
        return blocks;
    }

    /// Takes a block; returns its number, -1 if there is none.
    int take() {
        long block = cells.take(0);
        return block >= 0 ? (int) block : refill();
    }

    private int refill() {
        lock.lock();
        try {
            int stripe = cells.stripe();
            // Another thread may have refilled the cell.
            long block = cells.take(0);
            if (block < 0) {
                leave(stripe);
                block = grab(stripe);
            }
            if (block < 0) {
                for (int other = 0; other < cells.stripes(); other++) {
                    leave(other);
                }
                block = grab(stripe);
            }
            return (int) block;
        } finally {
            lock.unlock();
        }
    }

    private long grab(int stripe) {
        for (int i = 0; i < candidates.length; i++) {
            for (long left = Atomics.get(candidates, i); left != 0; left &= left - 1) {
                int word = i * 64 + Long.numberOfTrailingZeros(left);
                if (word >= cellOf.length) {
                    break;
                }
                long free = words.get(word) & Words.FREE;
                if (free == 0) {
                    Atomics.clear(candidates, i, left & -left);
                    // A block may have been freed before the bit was cleared.
                    free = words.get(word) & Words.FREE;
                    if (free != 0) {
                        Atomics.set(candidates, i, left & -left);
                    }
                }
                if (free != 0 && cellOf[word] == NO_CELL) {
                    Atomics.put(cellOf, word, stripe + 1);
                    cells.begin(0, stripe, word);
                    // Nobody else takes any: the lock is held.
                    long bits = words.take(word, quota);
                    cells.end(0, stripe, word, bits & (bits - 1));
                    return (long) word * Words.SLOTS + Long.numberOfTrailingZeros(bits);
                }
            }
        }
        return -1;
    }

    /// Puts the free slots of a cell into their word.
    private void leave(int stripe) {
        int word = (int) cells.place(0, stripe);
        if (word >= 0) {
            long bits = cells.empty(0, stripe);
            if (bits != 0) {
                words.put(word, bits);
            }
            cells.clear(0, stripe);
            Atomics.put(cellOf, word, NO_CELL);
            Atomics.set(candidates, word >>> 6, 1L << word);
        }
    }

    /// Frees a block; returns false if it is free already.
    boolean give(int block) {
        int word = block / Words.SLOTS;
        long bit = 1L << block % Words.SLOTS;
        while (true) {
            long before = words.get(word);
            int stripe = Atomics.get(cellOf, word) - 1;
            long cell = stripe < 0 ? Cells.ELSEWHERE : cells.of(0, stripe, word);
            if (cell != Cells.ELSEWHERE) {
                // Not `before`: another thread may have freed it before the word was in the cell.
                if (((words.get(word) | cell) & bit) != 0) {
                    return false;
                }
                if (intoCells && cells.give(0, stripe, cell, bit)) {
                    return true;
                }
                if (intoCells) {
                    continue;
                }
            }
            if ((before & bit) != 0) {
                return false;
            }
            if (words.give(word, before, bit)) {
                if ((before & Words.FREE) == 0) {
                    Atomics.set(candidates, word >>> 6, 1L << word);
                }
                return true;
            }
        }
    }

    /// Number of taken blocks; exact if no other thread takes or frees one.
    int taken() {
        long free = cells.free(0);
        for (int word = 0; word < cellOf.length; word++) {
            free += Long.bitCount(words.get(word) & Words.FREE);
        }
        return (int) (blocks - free);
    }
}
