package io.hugewise.memory;

/// Blocks of the classes whose sizes are no multiples of a unit: slots in spans of 1 to 32 units.
///
/// A free slot is a bit: in the words of its span, or in the cell that has its word. Slots are taken from cells, and
/// freed into the cell or else the word, by one atomic operation and without a lock. Slots of which a cell may not
/// hold a whole word are always freed into the word. The lock of a class orders the moves between words and cells, and
/// the beginning and end of spans.
final class Slots {
    /// The cells hold at most 1/50 of the memory.
    private static final int CELLS_PART = 50;
    /// All classes together keep at most 1/32 of the memory in empty spans, and each at most 256 KiB.
    private static final int KEPT_PART = 32;

    private static final int MOST_KEPT = 64;

    /// A word with more free slots is not filled first, so that spans with few blocks become empty.
    private static final int MOST_FREE_OF_FREED = 8;

    /// Answers of an attempt to free a slot; `AGAIN` if something has changed meanwhile.
    private static final int AGAIN = -1;

    private static final int REFUSED = 0;
    private static final int GIVEN = 1;

    private final Units units;
    private final Words words;
    private final Cells cells;
    private final SlotClass[] classes = new SlotClass[SizeClasses.COUNT];
    private final IdleSlots idle;
    /// The word in which a thread of a stripe freed a slot last: first unit of the span, and number of the word in it.
    /// A hint, read and written without synchronization.
    private final long[] freed;

    Slots(Units units, long bytes, int stripes) {
        this.units = units;
        this.words = new Words((long) units.count() << SlotPlaces.WORDS_LOG2);
        this.cells = new Cells(SizeClasses.COUNT, stripes);
        this.idle = new IdleSlots(units, words, classes);
        this.freed = new long[stripes * SizeClasses.COUNT];
        int mostKept = Math.min(MOST_KEPT, units.count() / KEPT_PART / SizeClasses.COUNT);
        int[] next = new int[units.count()];
        for (int c = 0; c < classes.length; c++) {
            long quota = bytes / CELLS_PART / stripes / SizeClasses.COUNT / SizeClasses.size(c);
            var queue = new SpanQueue(units, c, next);
            classes[c] = new SlotClass(c, units, words, queue, Math.clamp(quota, 1, Words.SLOTS), mostKept);
        }
    }

    // Taking

    /// Takes a slot out of the cell of the calling thread, or one that a thread of its stripe has freed; returns its
    /// offset from unit 0, -1 if there is none.
    long take(int sizeClass) {
        long slot = cells.take(sizeClass);
        return slot < 0 ? takeFreed(sizeClass) : SlotPlaces.offset(slot, sizeClass);
    }

    private long takeFreed(int sizeClass) {
        long last = freed[indexOfFreed(sizeClass)];
        int first = (int) (last >>> Words.IN_SPAN_LOG2);
        int ofSpan = (int) (last & (1 << Words.IN_SPAN_LOG2) - 1);
        long word = SlotPlaces.firstWord(first) + ofSpan;
        // In this order: if the span ends after this reading, the word changes.
        long now = words.get(word);
        int info = units.info(first);
        long bit = Long.lowestOneBit(now & Words.FREE);
        boolean isThere = bit != 0 && (info & UnitInfo.KEPT) == 0 && classes[sizeClass].queue.isOurs(info);
        if (!isThere || !words.takeOne(word, now, bit)) {
            return -1;
        }
        touch(sizeClass, first, ofSpan, bit);
        int slot = ofSpan * Words.SLOTS + Long.numberOfTrailingZeros(bit);
        return ((long) first << Units.UNIT_LOG2) + (long) slot * SizeClasses.size(sizeClass);
    }

    private int indexOfFreed(int sizeClass) {
        return cells.stripe() * SizeClasses.COUNT + sizeClass;
    }

    /// Takes any slot, and puts others into the cell of the calling thread; returns its offset, -1 if there is none.
    long refill(int sizeClass) {
        long slot = refill(classes[sizeClass]);
        return slot < 0 ? -1 : SlotPlaces.offset(slot, sizeClass);
    }

    private long refill(SlotClass of) {
        of.lock.lock();
        try {
            int stripe = cells.stripe();
            long place = cells.place(of.sizeClass, stripe);
            // Another thread may have refilled the cell, or freed a slot of it.
            long bits = cells.empty(of.sizeClass, stripe);
            if (bits != 0) {
                return fill(of, stripe, place, bits);
            }
            long slot = -1;
            if (place >= 0) {
                int first = firstUnit(place);
                slot = grab(of, stripe, first);
                if (slot < 0) {
                    cells.clear(of.sizeClass, stripe);
                    of.leaveCell(first);
                }
            }
            for (int first = 0; slot < 0 && first >= 0; ) {
                first = of.queue.poll();
                slot = first < 0 ? -1 : grab(of, stripe, first);
            }
            if (slot < 0) {
                int first = of.begin();
                slot = first < 0 ? -1 : grab(of, stripe, first);
            }
            return slot;
        } finally {
            of.lock.unlock();
        }
    }

    /// The first unit of the span of a word.
    private int firstUnit(long place) {
        int unit = SlotPlaces.unitOf(place);
        return unit - UnitInfo.back(units.info(unit));
    }

    /// Moves free slots of a span into an empty cell; returns one of them, -1 if the span has none.
    private long grab(SlotClass of, int stripe, int first) {
        int count = SlotPlaces.wordsOf(of.sizeClass, units.info(first));
        boolean isEntered = false;
        for (int i = 0; i < count; i++) {
            long word = SlotPlaces.firstWord(first) + i;
            if ((words.get(word) & Words.FREE) == 0) {
                continue;
            }
            // In this order: who frees a slot twice finds it in the word, or in the cell, or the word changed.
            of.enterCell(first, stripe);
            isEntered = true;
            long place = SlotPlaces.place(first, i, of.sizeClass);
            cells.begin(of.sizeClass, stripe, place);
            long bits = words.take(word, of.quota);
            if (bits != 0) {
                touch(of.sizeClass, first, i, bits);
                return fill(of, stripe, place, bits);
            }
        }
        if (isEntered) {
            leave(of, stripe, first);
        }
        return -1;
    }

    private void leave(SlotClass of, int stripe, int first) {
        cells.clear(of.sizeClass, stripe);
        of.leaveCell(first);
        of.queue.add(first);
    }

    /// Ends a move into a cell, and takes one of the slots.
    private long fill(SlotClass of, int stripe, long place, long bits) {
        cells.end(of.sizeClass, stripe, place, bits & (bits - 1));
        return (place << Words.SLOTS_LOG2) + Long.numberOfTrailingZeros(bits);
    }

    /// Marks the units of slots of a word.
    private void touch(int sizeClass, int first, int word, long bits) {
        int size = SizeClasses.size(sizeClass);
        int from = (word * Words.SLOTS + Long.numberOfTrailingZeros(bits)) * size;
        int to = (word * Words.SLOTS + Long.SIZE - Long.numberOfLeadingZeros(bits)) * size;
        int begin = from >>> Units.UNIT_LOG2;
        units.touch(first + begin, ((to - 1) >>> Units.UNIT_LOG2) - begin + 1);
    }

    /// Frees the units of all spans without blocks, and puts the free slots of all cells within reach of all threads.
    void reclaim() {
        for (SlotClass of : classes) {
            if (!of.isUsed()) {
                continue;
            }
            of.lock.lock();
            try {
                for (int stripe = 0; stripe < cells.stripes(); stripe++) {
                    emptyCell(of, stripe);
                }
                of.endEmpty();
            } finally {
                of.lock.unlock();
            }
        }
    }

    /// Puts the free slots of all cells that did not change since the last call back into their words.
    void reclaimIdle() {
        for (SlotClass of : classes) {
            for (int stripe = 0; stripe < cells.stripes(); stripe++) {
                if (of.isUsed() && cells.isIdle(of.sizeClass, stripe)) {
                    of.lock.lock();
                    try {
                        emptyCell(of, stripe);
                    } finally {
                        of.lock.unlock();
                    }
                }
            }
        }
    }

    private void emptyCell(SlotClass of, int stripe) {
        long place = cells.place(of.sizeClass, stripe);
        if (place >= 0) {
            int first = firstUnit(place);
            long bits = cells.empty(of.sizeClass, stripe);
            if (bits != 0) {
                words.put(SlotPlaces.wordAt(place, first, of.sizeClass), bits);
            }
            leave(of, stripe, first);
        }
    }

    // Freeing

    /// Frees a slot.
    ///
    /// @param unit the unit of the offset
    /// @param info its information
    /// @param offset offset from unit 0
    /// @return false if it is free already
    /// @throws IllegalArgumentException if no slot starts there
    boolean give(int unit, int info, long offset) {
        SlotClass of = classes[UnitInfo.sizeClass(info)];
        int first = unit - UnitInfo.back(info);
        int slot = SlotPlaces.slotAt(of.sizeClass, info, first, offset);
        if (slot < 0) {
            throw Blocks.noBlock();
        }
        int ofSpan = slot >>> Words.SLOTS_LOG2;
        long bit = 1L << (slot & (Words.SLOTS - 1));
        for (int spins = 0; ; spins++) {
            int now = units.info(first);
            if (!UnitInfo.isFirstOf(now, info)) {
                throw Blocks.noBlock();
            }
            if ((now & UnitInfo.SEALED) != 0) {
                SpinLock.pause(spins);
                continue;
            }
            long cell = cellOf(of.sizeClass, first, ofSpan, now);
            int given = cell != Cells.ELSEWHERE && of.isFreedIntoCell()
                    ? giveToCell(of, first, ofSpan, now, cell, bit)
                    : giveToWord(of, first, ofSpan, now, bit);
            if (given != AGAIN) {
                return given == GIVEN;
            }
        }
    }

    private int giveToCell(SlotClass of, int first, int ofSpan, int now, long cell, long bit) {
        long free = (words.get(SlotPlaces.firstWord(first) + ofSpan) | cell) & Words.FREE;
        if ((free & bit) != 0) {
            return REFUSED;
        }
        // If the span was sealed before the word was read, the slot may be free and not in it.
        if (units.info(first) != now || !cells.give(of.sizeClass, UnitInfo.stripe(now), cell, bit)) {
            return AGAIN;
        }
        if (units.isScarce()) {
            // A request that failed would find the slot, or the units of its span.
            if ((cell & Words.FREE) == 0) {
                of.noteFreed();
            }
            if ((free | bit) == SlotPlaces.all(of.sizeClass, now, ofSpan)) {
                units.noteRelease();
            }
        }
        return GIVEN;
    }

    private int giveToWord(SlotClass of, int first, int ofSpan, int now, long bit) {
        long word = SlotPlaces.firstWord(first) + ofSpan;
        long before = words.get(word);
        // A later move into a cell changes the word.
        long cell = cellOf(of.sizeClass, first, ofSpan, now);
        if (units.info(first) != now || (cell != Cells.ELSEWHERE && of.isFreedIntoCell())) {
            return AGAIN;
        }
        if (((before | cell) & bit) != 0) {
            return REFUSED;
        }
        if (!words.give(word, before, bit)) {
            return AGAIN;
        }
        if (Long.bitCount(before & Words.FREE) < MOST_FREE_OF_FREED) {
            freed[indexOfFreed(of.sizeClass)] = (long) first << Words.IN_SPAN_LOG2 | ofSpan;
        }
        freedInWord(of, first, now, (before & Words.FREE) | bit, bit, SlotPlaces.all(of.sizeClass, now, ofSpan));
        return GIVEN;
    }

    /// The cell that has a word of a span.
    private long cellOf(int sizeClass, int first, int ofSpan, int info) {
        return UnitInfo.isCurrent(info)
                ? cells.of(sizeClass, UnitInfo.stripe(info), SlotPlaces.place(first, ofSpan, sizeClass))
                : Cells.ELSEWHERE;
    }

    /// A slot was freed in its word. It may be taken by others now, and the span may end.
    ///
    /// @param now information of the span
    /// @param free the free slots of the word
    /// @param bit the slot
    /// @param all all slots of the word
    private void freedInWord(SlotClass of, int first, int now, long free, long bit, long all) {
        if (free == bit) {
            of.queue.add(first);
            of.noteFreed();
        }
        if (free == all) {
            if (UnitInfo.isCurrent(now)) {
                // A request that failed would find it.
                units.noteRelease();
            } else {
                of.endIfEmpty(first);
            }
        }
    }

    /// Whether a slot that starts at the offset is taken.
    boolean isTaken(int unit, int info, long offset) {
        int sizeClass = UnitInfo.sizeClass(info);
        int first = unit - UnitInfo.back(info);
        int slot = SlotPlaces.slotAt(sizeClass, info, first, offset);
        if (slot < 0) {
            return false;
        }
        int now = units.info(first);
        long inCell = cellOf(sizeClass, first, slot / Words.SLOTS, now) & Words.FREE;
        long inWord = words.get(SlotPlaces.firstWord(first) + slot / Words.SLOTS);
        return ((inWord | inCell) >>> slot % Words.SLOTS & 1) == 0;
    }

    /// As [IdleSlots#untouch].
    long untouch(int from, long wanted, Units.Run run) {
        return idle.untouch(from, wanted, run);
    }

    // Figures

    /// Bytes of the slots of a span that are taken, or in a cell.
    long taken(int first, int info) {
        int sizeClass = UnitInfo.sizeClass(info);
        int taken = SizeClasses.blocks(sizeClass, UnitInfo.units(info));
        for (int i = 0; i < SlotPlaces.wordsOf(sizeClass, info); i++) {
            taken -= Long.bitCount(words.get(SlotPlaces.firstWord(first) + i) & Words.FREE);
        }
        return taken * (long) SizeClasses.size(sizeClass);
    }

    /// Free bytes in cells.
    long freeInCells() {
        long free = 0;
        for (int c = 0; c < classes.length; c++) {
            free += cells.free(c) * (long) SizeClasses.size(c);
        }
        return free;
    }

    /// Changes if a slot of a class became free where none was.
    int events(int sizeClass) {
        return classes[sizeClass].events();
    }
}
