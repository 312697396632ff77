package io.hugewise.memory;

import java.lang.ref.Reference;

/// What threads do most often, in few instructions: they take and free slots of words that their own cache owns.
///
/// If anything else is needed, nothing is done, and [Blocks] does it. What is read of the memory is what stays the same
/// while a cache owns a word.
final class OwnSlots {
    private static final int NONE = -1;
    /// Bits of an offset that no memory has.
    private static final int MOST_LOG2 = Units.UNIT_LOG2 + Integer.SIZE - 1;

    private final Units units;
    private final int[] info;
    private final long skew;
    private final Words words;
    /// Where the words begin.
    private final long start;
    private final SlotPlaces places;
    private final SlotClass[] classes;
    private final long[][] states;

    /// @param states those of the caches of platform threads, by the low bits of the thread's id
    OwnSlots(Units units, Words words, SlotPlaces places, SlotClass[] classes, long[][] states) {
        this.units = units;
        this.info = units.infos();
        this.skew = units.skew;
        this.words = words;
        this.start = words.addressOf(0);
        this.places = places;
        this.classes = classes;
        this.states = states;
    }

    /// Takes a slot; returns its offset in the memory, -1 if it was not done.
    long take(int sizeClass) {
        long id = Thread.currentThread().threadId();
        long[] cache = states[(int) id & states.length - 1];
        if (cache[SlotCache.THREAD] != id) {
            return NONE;
        }
        try {
            return SlotCache.enter(cache) ? take(cache, sizeClass) : NONE;
        } finally {
            SlotCache.leave(cache);
            Reference.reachabilityFence(words);
        }
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
        long id = Thread.currentThread().threadId();
        long[] cache = states[(int) id & states.length - 1];
        if (!UnitInfo.isOfSlots(ofUnit) || cache[SlotCache.THREAD] != id) {
            return false;
        }
        try {
            return SlotCache.enter(cache) && give(cache, unit - UnitInfo.back(ofUnit), ofUnit, from);
        } finally {
            SlotCache.leave(cache);
            Reference.reachabilityFence(words);
        }
    }

    private boolean give(long[] cache, int first, int ofUnit, long from) {
        int sizeClass = UnitInfo.sizeClass(ofUnit);
        long size = SizeClasses.size(sizeClass);
        int within = (int) from - (first << Units.UNIT_LOG2);
        int slot = SizeClasses.blockAt(sizeClass, within);
        int ofSpan = slot >>> Words.SLOTS_LOG2;
        long word = SlotPlaces.firstWord(first) + ofSpan;
        long address = start + (word << Words.RECORD_LOG2);
        long shared = Words.sharedAt(address);
        long own = Words.ownAt(address);
        int ofWord = slot & Words.SLOTS - 1;
        long bit = 1L << ofWord;
        long room = cache[SlotCache.ROOM] - size;
        // Only its thread gives a word to a cache. So if the cache owns the word, it did when the unit was read, and the
        // span has not ended since.
        if (slot * size != within
                || slot >= UnitInfo.slots(ofUnit)
                || Words.ownerOf(shared) != cache[SlotCache.TAG]
                || ((shared | own) & bit) != 0
                || room < 0) {
            return false;
        }
        cache[SlotCache.ROOM] = room;
        long before = own;
        if ((own & Words.FREE) == 0) {
            before = SlotCache.push(cache, SlotCache.indexOf(sizeClass), word, from - ofWord * size);
        }
        Words.setOwnAt(address, before | bit);
        if (units.isScarce()) {
            classes[sizeClass].noteFreed(ofUnit, ofSpan, (shared | own) & Words.FREE, bit);
        }
        return true;
    }
}
