package io.hugewise.memory;

/// Where slots of a span and their words are.
///
/// A span has a word for 32 slots, from word [#firstWord] on. The place of a word is the offset of its first slot, in
/// units of 512 bytes, of which 32 slots of any class are a multiple.
final class SlotPlaces {
    /// Words of a unit: eight, enough for slots of 16 bytes, in one cache line.
    static final int WORDS_LOG2 = 3;
    private static final int PLACE_LOG2 = Words.SLOTS_LOG2 + 4;

    private SlotPlaces() {}

    /// The offset of a slot that a cell returned.
    static long offset(long taken, int sizeClass) {
        return (taken >>> Words.SLOTS_LOG2 << PLACE_LOG2)
                + (taken & (Words.SLOTS - 1)) * SizeClasses.size(sizeClass);
    }

    static long place(int first, int ofSpan, int sizeClass) {
        return ((long) first << (Units.UNIT_LOG2 - PLACE_LOG2))
                + ofSpan * (long) (SizeClasses.size(sizeClass) >>> (PLACE_LOG2 - Words.SLOTS_LOG2));
    }

    /// A unit in which the word's first slot lies.
    static int unitOf(long place) {
        return (int) (place >>> (Units.UNIT_LOG2 - PLACE_LOG2));
    }

    static long wordAt(long place, int first, int sizeClass) {
        long after = place - place(first, 0, sizeClass);
        return firstWord(first) + after / (SizeClasses.size(sizeClass) >>> (PLACE_LOG2 - Words.SLOTS_LOG2));
    }

    static long firstWord(int first) {
        return (long) first << WORDS_LOG2;
    }

    static int wordsOf(int sizeClass, int info) {
        return (SizeClasses.blocks(sizeClass, UnitInfo.units(info)) + Words.SLOTS - 1) / Words.SLOTS;
    }

    /// All slots of a word of a span.
    static long all(int sizeClass, int info, int word) {
        int left = SizeClasses.blocks(sizeClass, UnitInfo.units(info)) - word * Words.SLOTS;
        return left >= Words.SLOTS ? Words.FREE : (1L << left) - 1;
    }

    /// The slot that starts at an offset; -1 if none does.
    static int slotAt(int sizeClass, int info, int first, long offset) {
        int within = (int) (offset - ((long) first << Units.UNIT_LOG2));
        int slot = SizeClasses.blockAt(sizeClass, within);
        boolean isStart = slot * SizeClasses.size(sizeClass) == within;
        return isStart && slot < SizeClasses.blocks(sizeClass, UnitInfo.units(info)) ? slot : -1;
    }

    static long bits(int slot, int count) {
        return ((1L << count) - 1) << (slot % Words.SLOTS);
    }

    /// The slot in which a unit of a span begins.
    static int firstSlot(int info) {
        return SizeClasses.blockAt(UnitInfo.sizeClass(info), UnitInfo.back(info) << Units.UNIT_LOG2);
    }

    /// The slot in which it ends, or the last one of the span.
    static int lastSlot(int info) {
        int sizeClass = UnitInfo.sizeClass(info);
        int end = SizeClasses.blockAt(sizeClass, ((UnitInfo.back(info) + 1) << Units.UNIT_LOG2) - 1);
        return Math.min(end, SizeClasses.blocks(sizeClass, UnitInfo.units(info)) - 1);
    }
}
