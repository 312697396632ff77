package io.hugewise.memory;

import java.lang.ref.Reference;
import org.jspecify.annotations.Nullable;

/// What threads do most often, in few instructions: they take and free slots of words that their cache owns.
///
/// If anything else is needed, nothing is done, and [Slots] does it. So it is without calls, and small enough to be
/// compiled into the code that allocates.
final class SlotFastPath {
    private static final int NONE = -1;
    /// Bits of an offset that no memory has.
    private static final int MOST_LOG2 = Units.UNIT_LOG2 + Integer.SIZE - 1;

    private final Units units;
    private final Scarcity scarcity;
    private final int[] info;
    private final long skew;
    private final Words words;
    /// Where the words begin.
    private final long start;
    private final SlotPlaces places;
    private final SlotClass[] classes;
    private final long[][] owned;
    private final long[][] shared;

    /// @param owned states of the caches of platform threads, by the low bits of the thread's id
    /// @param shared states of the other caches, by the low bits of the number of a CPU
    SlotFastPath(Units units, Words words, SlotPlaces places, SlotClass[] classes, long[][] owned, long[][] shared) {
        this.units = units;
        this.scarcity = units.scarcity();
        this.info = units.infos();
        this.skew = units.skew;
        this.words = words;
        this.start = words.addressOf(0);
        this.places = places;
        this.classes = classes;
        this.owned = owned;
        this.shared = shared;
    }

    /// Takes a slot; returns its offset in the memory, -1 if it was not done.
    long take(int sizeClass) {
        Thread thread = Thread.currentThread();
        long[] cache = owned[(int) thread.threadId() & owned.length - 1];
        if (cache[SlotCache.THREAD] != thread.threadId()) {
            return takeShared(thread, sizeClass);
        }
        try {
            return SlotCache.enter(cache) ? take(cache, sizeClass) : NONE;
        } finally {
            SlotCache.leave(cache);
            Reference.reachabilityFence(words);
        }
    }

    private long takeShared(Thread thread, int sizeClass) {
        long[] cache = sharedOf(thread);
        if (cache == null || !SlotCache.tryEnter(cache)) {
            return NONE;
        }
        try {
            return take(cache, sizeClass);
        } finally {
            SlotCache.leave(cache);
            Reference.reachabilityFence(words);
        }
    }

    /// The cache of a virtual thread. A platform thread gets its own.
    private long @Nullable [] sharedOf(Thread thread) {
        return Words.HAVE_ADDRESSES && thread.isVirtual() ? shared[Cpu.current() & shared.length - 1] : null;
    }

    private long take(long[] cache, int sizeClass) {
        int at = SlotCache.indexOf(sizeClass);
        long word = cache[at];
        if (word < 0) {
            return NONE;
        }
        long address = start + (word << Words.RECORD_LOG2);
        long own = Words.ownAt(address);
        long bit = own & -own;
        // A slot that two threads have freed at the same moment may be free in both halves.
        if ((Words.sharedAt(address) & bit) != 0) {
            return NONE;
        }
        long size = SizeClasses.size(sizeClass);
        long offset = cache[at + 1] + Long.numberOfTrailingZeros(bit) * size - skew;
        cache[SlotCache.ROOM] += size;
        Words.setOwnAt(address, own ^ bit);
        if (((own ^ bit) & Words.FREE) == 0) {
            SlotCache.pop(cache, at, own, places, sizeClass);
        }
        return offset;
    }

    /// Frees a slot; returns whether it was done.
    ///
    /// @param offset any offset in the memory
    boolean give(long offset) {
        long from = offset + skew;
        int unit = (int) (from >>> Units.UNIT_LOG2);
        if (from >>> MOST_LOG2 != 0 || Integer.compareUnsigned(unit, info.length) >= 0) {
            return false;
        }
        int ofUnit = info[unit];
        if (!UnitInfo.isOfSlots(ofUnit)) {
            return false;
        }
        Thread thread = Thread.currentThread();
        long[] cache = owned[(int) thread.threadId() & owned.length - 1];
        if (cache[SlotCache.THREAD] != thread.threadId()) {
            return giveShared(thread, unit, from);
        }
        try {
            // Only its thread gives a word to a cache. So if the cache owns the word, it did when the unit was read, and the
            // span has not ended since.
            return SlotCache.enter(cache) && give(cache, unit, ofUnit, from);
        } finally {
            SlotCache.leave(cache);
            Reference.reachabilityFence(words);
        }
    }

    private boolean giveShared(Thread thread, int unit, long from) {
        long[] cache = sharedOf(thread);
        if (cache == null || !SlotCache.tryEnter(cache)) {
            return false;
        }
        try {
            // A span with a word of a cache does not end while the cache is in use.
            int ofUnit = units.info(unit);
            return UnitInfo.isOfSlots(ofUnit) && give(cache, unit, ofUnit, from);
        } finally {
            SlotCache.leave(cache);
            Reference.reachabilityFence(words);
        }
    }

    private boolean give(long[] cache, int unit, int ofUnit, long from) {
        int first = unit - UnitInfo.back(ofUnit);
        int sizeClass = UnitInfo.sizeClass(ofUnit);
        long size = SizeClasses.size(sizeClass);
        int within = (int) from - (first << Units.UNIT_LOG2);
        int slot = SizeClasses.blockAt(sizeClass, within);
        int ofSpan = slot >>> Words.SLOTS_LOG2;
        long word = SlotPlaces.firstWord(first) + ofSpan;
        long address = start + (word << Words.RECORD_LOG2);
        long others = Words.sharedAt(address);
        long own = Words.ownAt(address);
        int ofWord = slot & Words.SLOTS - 1;
        long bit = 1L << ofWord;
        long room = cache[SlotCache.ROOM] - size;
        if (slot * size != within
                || slot >= UnitInfo.slots(ofUnit)
                || Words.ownerOf(others) != cache[SlotCache.TAG]
                || ((others | own) & bit) != 0
                || room < 0) {
            return false;
        }
        cache[SlotCache.ROOM] = room;
        long before = own;
        if ((own & Words.FREE) == 0) {
            before = SlotCache.push(cache, SlotCache.indexOf(sizeClass), word, from - ofWord * size);
        }
        Words.setOwnAt(address, before | bit);
        if (scarcity.isScarce()) {
            classes[sizeClass].noteFreed(ofUnit, ofSpan, (others | own) & Words.FREE, bit);
        }
        return true;
    }
}
