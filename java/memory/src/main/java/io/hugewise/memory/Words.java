package io.hugewise.memory;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.lang.ref.Reference;
import org.jspecify.annotations.Nullable;

/// Words of 32 slots: which of them are free. Outside of the heap, because there are many.
///
/// ```text
///           63          48 47          32 31                0
/// shared   │ take-outs    │ owner        │ free slots         │   changed by atomic operations
/// own      │ next word + 1               │ free slots         │   of the owner alone
/// ```
///
/// The owner is the tag of a [SlotCache], 0 for none. It alone reads and writes the free slots of its half, without
/// atomic operations; other threads free slots into the shared half. `take-outs` counts how often slots were taken out
/// of the shared half, so that an exchange that is based on an older reading fails even if the slots are the same again.
final class Words {
    /// Slots of a word.
    static final int SLOTS_LOG2 = 5;

    static final int SLOTS = 1 << SLOTS_LOG2;
    static final long FREE = (1L << SLOTS) - 1;

    private static final int OWNER = SLOTS;
    private static final long OWNER_BITS = 0xFFFFL << OWNER;
    private static final long ONE = 1L << 48;
    /// Bytes of a word.
    static final int RECORD_LOG2 = 4;
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();
    /// The same without a check of the alignment.
    private static final VarHandle PLAIN = ValueLayout.JAVA_LONG_UNALIGNED.varHandle();

    /// The whole address space, whose bounds need no check, if native access is permitted; otherwise null.
    private static final @Nullable MemorySegment ALL =
            Metadata.isKernelCallable() ? MemorySegment.NULL.reinterpret(Long.MAX_VALUE) : null;

    /// Whether words can be accessed by address.
    static final boolean HAVE_ADDRESSES = ALL != null;

    private final MemorySegment memory;
    /// Where the records begin in `accessed`.
    private final long start;

    /// No slot is free.
    Words(long words) {
        memory = Metadata.reserve(words << RECORD_LOG2);
        start = ALL == null ? 0 : memory.address();
    }

    private MemorySegment accessed() {
        return ALL == null ? memory : ALL;
    }

    static int ownerOf(long shared) {
        return (int) (shared >>> OWNER) & 0xFFFF;
    }

    private static long owned(long shared, int owner) {
        return (shared & ~OWNER_BITS) | (long) owner << OWNER;
    }

    long get(long word) {
        try {
            return (long) LONG.getAcquire(accessed(), addressOf(word));
        } finally {
            Reference.reachabilityFence(memory);
        }
    }

    private boolean change(long word, long from, long to) {
        try {
            return LONG.weakCompareAndSet(accessed(), addressOf(word), from, to);
        } finally {
            Reference.reachabilityFence(memory);
        }
    }

    // The half of the owner

    long own(long word) {
        try {
            return (long) LONG.get(accessed(), addressOf(word) + Long.BYTES);
        } finally {
            Reference.reachabilityFence(memory);
        }
    }

    void setOwn(long word, long own) {
        try {
            LONG.set(accessed(), addressOf(word) + Long.BYTES, own);
        } finally {
            Reference.reachabilityFence(memory);
        }
    }

    /// Takes free slots out of a word that was read, for a new owner or the present one; false if the word is not what was
    /// read.
    boolean own(long word, long read, long bits, int owner) {
        return change(word, read, owned(read & ~bits, owner) + ONE);
    }

    /// Frees slots of the owner, which owns the word no longer.
    void disown(long word, long bits) {
        long now = get(word);
        while (!change(word, now, owned(now, 0) + ONE | bits)) {
            now = get(word);
        }
    }

    // The same by address, if words have one. The caller keeps this object reachable.

    /// The address of a word.
    long addressOf(long word) {
        return start + (word << RECORD_LOG2);
    }

    static long sharedAt(long address) {
        return (long) PLAIN.get(ALL, address);
    }

    static long ownAt(long address) {
        return (long) PLAIN.get(ALL, address + Long.BYTES);
    }

    static void setOwnAt(long address, long own) {
        PLAIN.set(ALL, address + Long.BYTES, own);
    }

    // The shared half

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
            long bits = lowest(now & FREE, most);
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

    /// Sets all slots of a word that no other thread uses, and that has no owner then.
    void reset(long word, long bits) {
        long now = get(word);
        while (!change(word, now, owned(now & ~FREE, 0) + ONE | bits)) {
            now = get(word);
        }
    }

    /// The lowest bits, as many as are allowed.
    static long lowest(long bits, int most) {
        long kept = bits;
        for (int more = Long.bitCount(bits) - most; more > 0; more--) {
            kept ^= Long.highestOneBit(kept);
        }
        return kept;
    }
}
