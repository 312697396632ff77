package io.hugewise.memory;

/// Blocks of the classes whose sizes are no multiples of a unit: slots in spans of 1 to 32 units.
///
/// A free slot is a bit: in the words of its span, where it is freed, or in a cell, from which it is taken. Both
/// need no lock. The lock of a class orders the moves between the two, and the beginning and end of spans.
final class Slots {
    /// Words of a unit: eight, enough for slots of 16 bytes, in one cache line.
    private static final int WORDS_LOG2 = 3;
    private static final int PLACE_LOG2 = Words.SLOTS_LOG2 + 4;
    /// The cells hold at most 1/50 of the memory.
    private static final int CELLS_PART = 50;
    /// A new span has at most 1/8 of the units that its class holds, so that classes with little memory have short
    /// spans.
    private static final int SPAN_PART = 8;

    private static final int LONGEST_SPAN = 16;
    /// All classes together keep at most 1/32 of the memory in empty spans, and each at most 256 KiB.
    private static final int KEPT_PART = 32;

    private static final int MOST_KEPT = 64;

    private final Units units;
    private final Words words;
    private final Cells cells;
    private final OfClass[] classes = new OfClass[SizeClasses.COUNT];
    /// Most units of empty spans that a class keeps.
    private final int mostKept;

    /// The state of a class. Its lock guards all but `events`.
    private static final class OfClass {
        final SpinLock lock = new SpinLock();
        final SpanQueue queue;
        /// Most slots that a cell gets at once.
        final int quota;
        int heldUnits;
        /// Units of empty spans that are kept.
        int keptUnits;
        /// How often a word got its first free slot.
        final int[] events = new int[1];

        OfClass(SpanQueue queue, int quota) {
            this.queue = queue;
            this.quota = quota;
        }
    }

    Slots(Units units, long bytes, int stripes) {
        this.units = units;
        this.words = new Words((long) units.count() << WORDS_LOG2);
        this.cells = new Cells(SizeClasses.COUNT, stripes);
        this.mostKept = Math.min(MOST_KEPT, units.count() / KEPT_PART / SizeClasses.COUNT);
        int[] next = new int[units.count()];
        for (int c = 0; c < classes.length; c++) {
            long quota = bytes / CELLS_PART / stripes / SizeClasses.COUNT / SizeClasses.size(c);
            classes[c] = new OfClass(new SpanQueue(units, c, next), Math.clamp(quota, 1, Words.SLOTS));
        }
    }

    // Taking

    /// Takes a slot; returns its offset from unit 0, -1 if there is none.
    long take(int sizeClass) {
        long slot = cells.take(sizeClass);
        return slot >= 0 ? offset(slot, sizeClass) : refill(sizeClass);
    }

    /// The offset of a slot that a cell returned: the place of a word is the offset of its first slot, in units of
    /// 512 bytes, of which 32 slots of any class are a multiple.
    private static long offset(long taken, int sizeClass) {
        return (taken >>> Words.SLOTS_LOG2 << PLACE_LOG2)
                + (taken & (Words.SLOTS - 1)) * SizeClasses.size(sizeClass);
    }

    private static long place(int first, int ofSpan, int sizeClass) {
        return ((long) first << (Units.UNIT_LOG2 - PLACE_LOG2))
                + ofSpan * (long) (SizeClasses.size(sizeClass) >>> (PLACE_LOG2 - Words.SLOTS_LOG2));
    }

    /// The first unit of the span of a word.
    private int firstUnit(long place) {
        int unit = (int) (place >>> (Units.UNIT_LOG2 - PLACE_LOG2));
        return unit - UnitInfo.back(units.info(unit));
    }

    private static long wordAt(long place, int first, int sizeClass) {
        long after = place - place(first, 0, sizeClass);
        return firstWord(first) + after / (SizeClasses.size(sizeClass) >>> (PLACE_LOG2 - Words.SLOTS_LOG2));
    }

    private static long firstWord(int first) {
        return (long) first << WORDS_LOG2;
    }

    private long refill(int sizeClass) {
        OfClass of = classes[sizeClass];
        of.lock.lock();
        try {
            int stripe = cells.stripe();
            long place = cells.place(sizeClass, stripe);
            // Another thread may have refilled the cell, or freed a slot of it.
            long bits = cells.empty(sizeClass, stripe);
            if (bits != 0) {
                cells.end(sizeClass, stripe, place, bits & (bits - 1));
                return offset((place << Words.SLOTS_LOG2) + Long.numberOfTrailingZeros(bits), sizeClass);
            }
            long slot = place < 0 ? -1 : grab(of, sizeClass, stripe, firstUnit(place));
            if (slot < 0 && place >= 0) {
                cells.clear(sizeClass, stripe);
                leaveCurrent(firstUnit(place));
            }
            for (int first = 0; slot < 0 && first >= 0; ) {
                first = of.queue.poll();
                slot = first < 0 ? -1 : grab(of, sizeClass, stripe, first);
            }
            if (slot < 0) {
                int first = begin(of, sizeClass);
                slot = first < 0 ? -1 : grab(of, sizeClass, stripe, first);
            }
            return slot < 0 ? -1 : offset(slot, sizeClass);
        } finally {
            of.lock.unlock();
        }
    }

    /// Moves free slots of a span into an empty cell; returns one of them, -1 if the span has none.
    private long grab(OfClass of, int sizeClass, int stripe, int first) {
        int count = wordsOf(sizeClass, units.info(first));
        for (int i = 0; i < count; i++) {
            long word = firstWord(first) + i;
            long free = words.get(word) & Words.FREE;
            if (free != 0) {
                long bits = Cells.lowest(free, of.quota);
                // In this order: who frees a slot twice finds it in the word, or in the cell, or the word changed.
                makeCurrent(of, first, stripe);
                long place = place(first, i, sizeClass);
                cells.begin(sizeClass, stripe, place);
                words.take(word, bits);
                touch(sizeClass, first, i, bits);
                cells.end(sizeClass, stripe, place, bits & (bits - 1));
                return (place << Words.SLOTS_LOG2) + Long.numberOfTrailingZeros(bits);
            }
        }
        return -1;
    }

    private static int wordsOf(int sizeClass, int info) {
        return (SizeClasses.blocks(sizeClass, UnitInfo.units(info)) + Words.SLOTS - 1) / Words.SLOTS;
    }

    /// All slots of a word of a span.
    private static long all(int sizeClass, int info, int word) {
        int left = SizeClasses.blocks(sizeClass, UnitInfo.units(info)) - word * Words.SLOTS;
        return left >= Words.SLOTS ? Words.FREE : (1L << left) - 1;
    }

    private void makeCurrent(OfClass of, int first, int stripe) {
        int info = units.info(first);
        while (!UnitInfo.isCurrent(info)) {
            if (units.changeInfo(first, info, UnitInfo.current(info, stripe))) {
                of.keptUnits -= (info & UnitInfo.KEPT) != 0 ? UnitInfo.units(info) : 0;
                return;
            }
            info = units.info(first);
        }
    }

    private void leaveCurrent(int first) {
        int info = units.info(first);
        while (!units.changeInfo(first, info, UnitInfo.notCurrent(info))) {
            info = units.info(first);
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
        int sizeClass = UnitInfo.sizeClass(info);
        int first = unit - UnitInfo.back(info);
        int slot = slotAt(sizeClass, info, first, offset);
        if (slot < 0) {
            throw Blocks.noBlock();
        }
        int ofSpan = slot >>> Words.SLOTS_LOG2;
        long word = firstWord(first) + ofSpan;
        long bit = 1L << (slot & (Words.SLOTS - 1));
        int span = UnitInfo.identity(info) & ~UnitInfo.BACK;
        while (true) {
            long before = words.get(word);
            int now = units.info(first);
            if (UnitInfo.identity(now) != span) {
                throw Blocks.noBlock();
            }
            if (UnitInfo.isCurrent(now)) {
                long place = place(first, ofSpan, sizeClass);
                int stripe = UnitInfo.stripe(now);
                long cell = cells.of(sizeClass, stripe, place);
                if (cell != Cells.ELSEWHERE) {
                    // Not `before`: another thread may have freed it before the word was in the cell.
                    if (((words.get(word) | cell) & bit) != 0) {
                        return false;
                    }
                    if (cells.give(sizeClass, stripe, cell, bit)) {
                        noteFreed(sizeClass);
                        return true;
                    }
                    continue;
                }
            }
            if ((before & bit) != 0) {
                return false;
            }
            if (words.give(word, before, bit)) {
                freedInWord(sizeClass, first, now, (before & Words.FREE) | bit, bit, all(sizeClass, info, ofSpan));
                return true;
            }
        }
    }

    /// A slot was freed: it may be taken by others now, and its span may end.
    ///
    /// @param now information of the span
    /// @param free the free slots of the word
    /// @param bit the slot
    /// @param all all slots of the word
    private void freedInWord(int sizeClass, int first, int now, long free, long bit, long all) {
        if (free == bit) {
            classes[sizeClass].queue.add(first);
            noteFreed(sizeClass);
        }
        if (free == all) {
            if (UnitInfo.isCurrent(now)) {
                // A request that failed would find it.
                units.noteRelease();
            } else {
                endIfEmpty(sizeClass, first);
            }
        }
    }

    /// Lets requests that failed be tried again: later than the slot can be found, so one that fails now has seen it.
    private void noteFreed(int sizeClass) {
        if (units.isScarce()) {
            Atomics.increase(classes[sizeClass].events, 0);
            units.noteRelease();
        }
    }

    /// The slot that starts at an offset; -1 if none does.
    private static int slotAt(int sizeClass, int info, int first, long offset) {
        int within = (int) (offset - ((long) first << Units.UNIT_LOG2));
        int slot = SizeClasses.blockAt(sizeClass, within);
        boolean isStart = slot * SizeClasses.size(sizeClass) == within;
        return isStart && slot < SizeClasses.blocks(sizeClass, UnitInfo.units(info)) ? slot : -1;
    }

    /// Whether a slot that starts at the offset is taken.
    boolean isTaken(int unit, int info, long offset) {
        int sizeClass = UnitInfo.sizeClass(info);
        int first = unit - UnitInfo.back(info);
        int slot = slotAt(sizeClass, info, first, offset);
        if (slot < 0) {
            return false;
        }
        long word = firstWord(first) + slot / Words.SLOTS;
        long place = place(first, slot / Words.SLOTS, sizeClass);
        int now = units.info(first);
        long inCell = UnitInfo.isCurrent(now) ? cells.of(sizeClass, UnitInfo.stripe(now), place) & Words.FREE : 0;
        return ((words.get(word) | inCell) >>> slot % Words.SLOTS & 1) == 0;
    }

    // Spans

    /// Begins a span whose slots are all free; returns its first unit, -1 if no run is free.
    private int begin(OfClass of, int sizeClass) {
        int shortest = SizeClasses.shortestSpan(sizeClass);
        int wanted = Math.clamp(Integer.highestOneBit(of.heldUnits / SPAN_PART), shortest, Math.max(shortest, LONGEST_SPAN));
        int first = units.takeRun(wanted, 0);
        int length = wanted;
        if (first < 0 && wanted > shortest) {
            first = units.takeRun(shortest, 0);
            length = shortest;
        }
        if (first < 0) {
            return -1;
        }
        int info = UnitInfo.slots(sizeClass, 0, length);
        for (int i = 0; i < wordsOf(sizeClass, info); i++) {
            words.reset(firstWord(first) + i, all(sizeClass, info, i));
        }
        for (int back = 0; back < length; back++) {
            units.setInfo(first + back, UnitInfo.slots(sizeClass, back, length));
        }
        of.heldUnits += length;
        return first;
    }

    /// Ends a span of which a word has no block, if the others have none.
    private void endIfEmpty(int sizeClass, int first) {
        OfClass of = classes[sizeClass];
        // Without the lock at first: most often another word has a block.
        if (!isEmpty(of, sizeClass, first)) {
            return;
        }
        of.lock.lock();
        try {
            if (isEmpty(of, sizeClass, first)) {
                keepOrEnd(of, first);
            }
        } finally {
            of.lock.unlock();
        }
    }

    private void keepOrEnd(OfClass of, int first) {
        int info = units.info(first);
        if ((info & UnitInfo.KEPT) != 0) {
            return;
        }
        if (of.keptUnits + UnitInfo.units(info) > mostKept) {
            end(of, first);
        } else if (units.changeInfo(first, info, info | UnitInfo.KEPT)) {
            of.keptUnits += UnitInfo.units(info);
            // A request that failed would find it.
            units.noteRelease();
        }
    }

    private boolean isEmpty(OfClass of, int sizeClass, int first) {
        int info = units.info(first);
        if (!of.queue.isOurs(info) || UnitInfo.isCurrent(info)) {
            return false;
        }
        for (int i = 0; i < wordsOf(sizeClass, info); i++) {
            if ((words.get(firstWord(first) + i) & Words.FREE) != all(sizeClass, info, i)) {
                return false;
            }
        }
        return true;
    }

    /// Ends an empty span, unless it is being queued at this moment. No slot of it can be freed or taken.
    private void end(OfClass of, int first) {
        of.queue.moveList();
        int info = units.info(first);
        boolean isBeingQueued = (info & (UnitInfo.QUEUED | UnitInfo.HEAPED)) == UnitInfo.QUEUED;
        if (isBeingQueued || !units.changeInfo(first, info, 0)) {
            return;
        }
        int length = UnitInfo.units(info);
        for (int unit = first + 1; unit < first + length; unit++) {
            units.setInfo(unit, 0);
        }
        of.heldUnits -= length;
        of.keptUnits -= (info & UnitInfo.KEPT) != 0 ? length : 0;
        units.give(first, length);
    }

    /// Frees the units of all spans without blocks, and puts the free slots of all cells within reach of all threads.
    void reclaim() {
        for (int c = 0; c < classes.length; c++) {
            OfClass of = classes[c];
            if (of.heldUnits == 0) {
                continue;
            }
            of.lock.lock();
            try {
                for (int stripe = 0; stripe < cells.stripes(); stripe++) {
                    emptyCell(of, c, stripe);
                }
                for (int first : of.queue.heaped()) {
                    if (isEmpty(of, c, first)) {
                        end(of, first);
                    }
                }
            } finally {
                of.lock.unlock();
            }
        }
    }

    private void emptyCell(OfClass of, int sizeClass, int stripe) {
        long place = cells.place(sizeClass, stripe);
        if (place >= 0) {
            int first = firstUnit(place);
            long bits = cells.empty(sizeClass, stripe);
            if (bits != 0) {
                words.put(wordAt(place, first, sizeClass), bits);
            }
            cells.clear(sizeClass, stripe);
            leaveCurrent(first);
            of.queue.add(first);
        }
    }

    // Idle units

    /// Marks the units of slots of a word.
    private void touch(int sizeClass, int first, int word, long bits) {
        int size = SizeClasses.size(sizeClass);
        int from = (word * Words.SLOTS + Long.numberOfTrailingZeros(bits)) * size;
        int to = (word * Words.SLOTS + Long.SIZE - Long.numberOfLeadingZeros(bits)) * size;
        int begin = from >>> Units.UNIT_LOG2;
        units.touch(first + begin, ((to - 1) >>> Units.UNIT_LOG2) - begin + 1);
    }

    /// Of the units from `from` on, given as bits: calls `run` for those in which all slots are free, and marks them
    /// as untouched. Returns such units that were not given, and are touched.
    long untouch(int from, long wanted, Units.Run run) {
        long idle = 0;
        for (int unit = from; unit < from + Units.CHUNK; unit++) {
            int info = units.info(unit);
            if (UnitInfo.kind(info) != UnitInfo.SLOTS || !units.isTouched(unit) || !isIdle(unit, info)) {
                continue;
            }
            if ((wanted >>> unit & 1) == 0) {
                idle |= 1L << unit;
            } else {
                untouch(unit, run);
            }
        }
        return idle;
    }

    private void untouch(int unit, Units.Run run) {
        int sizeClass = UnitInfo.sizeClass(units.info(unit));
        OfClass of = classes[sizeClass];
        of.lock.lock();
        try {
            int info = units.info(unit);
            // The span may have ended, and another one may have begun.
            if (UnitInfo.kind(info) != UnitInfo.SLOTS || UnitInfo.sizeClass(info) != sizeClass || !isIdle(unit, info)) {
                return;
            }
            int first = unit - UnitInfo.back(info);
            takeAll(unit, info, true);
            if (run.at(unit, 1)) {
                units.untouch(unit);
            }
            takeAll(unit, info, false);
            // What others freed meanwhile did not find an empty span.
            if (isEmpty(of, sizeClass, first)) {
                keepOrEnd(of, first);
            }
            of.queue.add(first);
            noteFreed(sizeClass);
        } finally {
            of.lock.unlock();
        }
    }

    private boolean isIdle(int unit, int info) {
        int first = unit - UnitInfo.back(info);
        int last = lastSlot(info);
        for (int slot = firstSlot(info); slot <= last; ) {
            int count = Math.min(last - slot + 1, Words.SLOTS - slot % Words.SLOTS);
            long bits = bits(slot, count);
            if ((words.get(firstWord(first) + slot / Words.SLOTS) & bits) != bits) {
                return false;
            }
            slot += count;
        }
        return true;
    }

    /// Takes the free slots of a unit out of their words, or puts them back. The class is locked.
    private void takeAll(int unit, int info, boolean out) {
        int first = unit - UnitInfo.back(info);
        int last = lastSlot(info);
        for (int slot = firstSlot(info); slot <= last; ) {
            int count = Math.min(last - slot + 1, Words.SLOTS - slot % Words.SLOTS);
            long word = firstWord(first) + slot / Words.SLOTS;
            if (out) {
                words.take(word, bits(slot, count));
            } else {
                words.put(word, bits(slot, count));
            }
            slot += count;
        }
    }

    private static long bits(int slot, int count) {
        return ((1L << count) - 1) << (slot % Words.SLOTS);
    }

    /// The slot in which a unit of a span begins.
    private static int firstSlot(int info) {
        return SizeClasses.blockAt(UnitInfo.sizeClass(info), UnitInfo.back(info) << Units.UNIT_LOG2);
    }

    /// The slot in which it ends, or the last one of the span.
    private static int lastSlot(int info) {
        int sizeClass = UnitInfo.sizeClass(info);
        int end = SizeClasses.blockAt(sizeClass, ((UnitInfo.back(info) + 1) << Units.UNIT_LOG2) - 1);
        return Math.min(end, SizeClasses.blocks(sizeClass, UnitInfo.units(info)) - 1);
    }

    // Figures

    /// Bytes of the slots of a span that are taken, or in a cell.
    long taken(int first, int info) {
        int sizeClass = UnitInfo.sizeClass(info);
        int taken = SizeClasses.blocks(sizeClass, UnitInfo.units(info));
        for (int i = 0; i < wordsOf(sizeClass, info); i++) {
            taken -= Long.bitCount(words.get(firstWord(first) + i) & Words.FREE);
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

    /// Changes if a slot of a class that had none became free.
    int events(int sizeClass) {
        return Atomics.get(classes[sizeClass].events, 0);
    }
}
