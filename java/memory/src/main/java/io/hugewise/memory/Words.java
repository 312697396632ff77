package io.hugewise.memory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;

/// Words of 32 bits, one per slot: set if the slot is free, and in no cell.
///
/// The other 32 bits of a word count how often slots were taken out of it, so that an exchange that is based on
/// an older reading fails even if the slots are the same again. Outside the heap, because there are many.
final class Words {
    /// Slots of a word.
    static final int SLOTS_LOG2 = 5;

    static final int SLOTS = 1 << SLOTS_LOG2;

    /// Bits of the number of a word in its span, which has at most 16 units of 8 words.
    static final int IN_SPAN_LOG2 = 8;

    static final long FREE = (1L << SLOTS) - 1;
    private static final long ONE = 1L << SLOTS;
    private static final VarHandle WORD = ValueLayout.JAVA_LONG.varHandle();

    private final MemorySegment memory;

    /// No slot is free.
    Words(long words) {
        memory = Arena.ofAuto().allocate(words * Long.BYTES, 64);
    }

    long get(long word) {
        return (long) WORD.getAcquire(memory, word * Long.BYTES);
    }

    private boolean change(long word, long from, long to) {
        return WORD.weakCompareAndSet(memory, word * Long.BYTES, from, to);
    }

    /// Frees slots that no other thread can free or take.
    void put(long word, long bits) {
        long now = get(word);
        while (!change(word, now, now + ONE | bits)) {
            now = get(word);
        }
    }

    /// Replaces a reading by the same with a free slot; false if the word is not what was read.
    boolean give(long word, long read, long bit) {
        return change(word, read, read | bit);
    }

    /// Takes free slots out, at most `most`; returns them as bits, 0 if there are none.
    long take(long word, int most) {
        while (true) {
            long now = get(word);
            long bits = Cells.lowest(now & FREE, most);
            if (bits == 0 || change(word, now, (now & ~bits) + ONE)) {
                return bits;
            }
        }
    }

    /// Takes these slots out if all of them are free.
    boolean takeAll(long word, long bits) {
        while (true) {
            long now = get(word);
            if ((now & bits) != bits) {
                return false;
            }
            if (change(word, now, (now & ~bits) + ONE)) {
                return true;
            }
        }
    }

    /// Replaces a reading by the same without a free slot; false if the word is not what was read.
    boolean takeOne(long word, long read, long bit) {
        return change(word, read, (read & ~bit) + ONE);
    }

    /// Sets all slots of a word that no other thread uses.
    void reset(long word, long bits) {
        long now = get(word);
        while (!change(word, now, (now & ~FREE) + ONE | bits)) {
            now = get(word);
        }
    }
}
