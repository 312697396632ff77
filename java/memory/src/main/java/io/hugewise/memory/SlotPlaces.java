package io.hugewise.memory;

/// Where slots of a span and their words are: a span has a word for 32 slots, from word [#firstWord] on.
final class SlotPlaces {
    /// Words of a unit: eight, enough for slots of 16 bytes.
    static final int WORDS_LOG2 = 3;

    private final Units units;

    SlotPlaces(Units units) {
        this.units = units;
    }

    /// The first unit of the span of a word, which has not ended.
    int firstUnit(long word) {
        int unit = (int) (word >>> WORDS_LOG2);
        return unit - UnitInfo.back(units.info(unit));
    }

    /// The offset of a word's first slot from unit 0; its span has not ended.
    long offset(long word, int sizeClass) {
        int first = firstUnit(word);
        return offset(first, (int) (word - firstWord(first)), sizeClass);
    }

    static long offset(int first, int ofSpan, int sizeClass) {
        return ((long) first << Units.UNIT_LOG2) + (long) (ofSpan << Words.SLOTS_LOG2) * SizeClasses.size(sizeClass);
    }

    static long firstWord(int first) {
        return (long) first << WORDS_LOG2;
    }

    static int wordsOf(int info) {
        return (UnitInfo.slots(info) + Words.SLOTS - 1) / Words.SLOTS;
    }

    /// All slots of a word of a span.
    static long all(int info, int word) {
        int left = UnitInfo.slots(info) - word * Words.SLOTS;
        return left >= Words.SLOTS ? Words.FREE : (1L << left) - 1;
    }

    /// The slot that starts at an offset; -1 if none does.
    static int slotAt(int sizeClass, int info, int first, long offset) {
        int within = (int) (offset - ((long) first << Units.UNIT_LOG2));
        int slot = SizeClasses.blockAt(sizeClass, within);
        boolean isStart = slot * SizeClasses.size(sizeClass) == within;
        return isStart && slot < UnitInfo.slots(info) ? slot : -1;
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
        return Math.min(end, UnitInfo.slots(info) - 1);
    }
}
