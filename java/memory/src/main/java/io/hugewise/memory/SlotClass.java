package io.hugewise.memory;

/// The spans of one class of [Slots]: how they begin, which of them may have free slots, and how they end.
///
/// Its lock guards all but `events`; methods are called with it, unless stated otherwise.
final class SlotClass {
    /// A new span has at most 1/8 of the units that its class holds, so that classes with little memory have short
    /// spans.
    private static final int SPAN_PART = 8;

    private static final int LONGEST_SPAN = 16;

    final int sizeClass;
    final SpinLock lock = new SpinLock();
    final SpanQueue queue;

    private final Units units;
    private final Words words;
    private final SlotCaches caches;
    /// Most units of empty spans that are kept.
    private final int mostKept;

    private int heldUnits;
    private int keptUnits;
    /// How often a slot became free where none was, since a request failed.
    private final int[] events = new int[1];

    SlotClass(int sizeClass, Units units, Words words, SlotCaches caches, SpanQueue queue, int mostKept) {
        this.sizeClass = sizeClass;
        this.units = units;
        this.words = words;
        this.caches = caches;
        this.queue = queue;
        this.mostKept = mostKept;
    }

    boolean isUsed() {
        return heldUnits > 0;
    }

    /// Changes if a slot became free where none was. Without the lock.
    int events() {
        return Atomics.get(events, 0);
    }

    /// Lets requests that failed be tried again: later than the slot can be found, so one that fails now has seen it.
    /// Without the lock.
    void noteFreed() {
        if (units.scarcity().isScarce()) {
            Atomics.increase(events, 0);
        }
    }

    /// Lets requests that failed be tried again that would find a slot, or the units of its span. Without the lock.
    ///
    /// @param info of the span
    /// @param free the free slots of the slot's word, without it
    /// @param bit the slot
    void noteFreed(int info, int ofSpan, long free, long bit) {
        if (free == 0) {
            noteFreed();
        }
        if ((free | bit) == SlotPlaces.all(info, ofSpan)) {
            units.scarcity().noteRelease();
        }
    }

    /// Begins a span whose slots are all free; returns its first unit, -1 if no run is free.
    int begin() {
        int shortest = SizeClasses.shortestSpan(sizeClass);
        int length = Math.clamp(Integer.highestOneBit(heldUnits / SPAN_PART), shortest, Math.max(shortest, LONGEST_SPAN));
        int first = units.takeRun(length, 0);
        if (first < 0 && length > shortest) {
            length = shortest;
            first = units.takeRun(length, 0);
        }
        if (first < 0) {
            return -1;
        }
        int info = UnitInfo.slots(sizeClass, 0, length);
        for (int i = 0; i < SlotPlaces.wordsOf(info); i++) {
            words.reset(SlotPlaces.firstWord(first) + i, SlotPlaces.all(info, i));
        }
        // The first unit last: from then on, slots of all units can be taken without the lock.
        for (int back = length - 1; back >= 0; back--) {
            units.setInfo(first + back, UnitInfo.slots(sizeClass, back, length));
        }
        heldUnits += length;
        return first;
    }

    /// Stops keeping a span as an empty one, before slots of it are taken.
    void use(int first) {
        int info = units.info(first);
        while ((info & UnitInfo.KEPT) != 0) {
            if (units.changeInfo(first, info, info & ~UnitInfo.KEPT)) {
                keptUnits -= UnitInfo.units(info);
            }
            info = units.info(first);
        }
    }

    /// Ends a span if it has no block. Without the lock.
    void endIfEmpty(int first) {
        // Most often another word has a block.
        if (!isEmpty(first)) {
            return;
        }
        lock.lock();
        try {
            if (isEmpty(first)) {
                keepOrEnd(first);
            }
        } finally {
            lock.unlock();
        }
    }

    /// Whether all slots of a span are free, and no cache has a word of it. Without the lock, the value of a moment.
    boolean isEmpty(int first) {
        int info = units.info(first);
        if (!queue.isOurs(info)) {
            return false;
        }
        for (int i = 0; i < SlotPlaces.wordsOf(info); i++) {
            long word = words.get(SlotPlaces.firstWord(first) + i);
            if ((word & Words.FREE) != SlotPlaces.all(info, i) || caches.isLive(Words.ownerOf(word))) {
                return false;
            }
        }
        return true;
    }

    /// Keeps an empty span for the next requests, if few are kept.
    void keepOrEnd(int first) {
        int info = units.info(first);
        if ((info & UnitInfo.KEPT) != 0) {
            return;
        }
        if (keptUnits + UnitInfo.units(info) > mostKept) {
            end(first);
        } else if (units.changeInfo(first, info, info | UnitInfo.KEPT)) {
            keptUnits += UnitInfo.units(info);
            // A request that failed would find it.
            units.scarcity().noteRelease();
        }
    }

    /// Ends all spans without blocks.
    void endEmpty() {
        for (int first : queue.heaped()) {
            if (isEmpty(first)) {
                end(first);
            }
        }
    }

    /// Lets who frees a slot of a span wait, until [#unseal].
    void seal(int first) {
        int info = units.info(first);
        while (!units.changeInfo(first, info, info | UnitInfo.SEALED)) {
            info = units.info(first);
        }
    }

    void unseal(int first) {
        int info = units.info(first);
        while (!units.changeInfo(first, info, info & ~UnitInfo.SEALED)) {
            info = units.info(first);
        }
    }

    /// Ends an empty span, unless it is being queued at this moment, or a slot was taken.
    private void end(int first) {
        queue.moveList();
        seal(first);
        int info = units.info(first);
        boolean isBeingQueued = (info & (UnitInfo.QUEUED | UnitInfo.HEAPED)) == UnitInfo.QUEUED;
        if (isBeingQueued || !takeAll(first, info)) {
            unseal(first);
            return;
        }
        if (!units.changeInfo(first, info, 0)) {
            put(first, info, SlotPlaces.wordsOf(info));
            unseal(first);
            return;
        }
        int length = UnitInfo.units(info);
        for (int unit = first + 1; unit < first + length; unit++) {
            units.setInfo(unit, 0);
        }
        heldUnits -= length;
        keptUnits -= (info & UnitInfo.KEPT) != 0 ? length : 0;
        units.give(first, length);
    }

    /// Takes all slots of a span, unless one is not free, or a cache has a word of it. Only with the lock a cache gets one.
    private boolean takeAll(int first, int info) {
        for (int i = 0; i < SlotPlaces.wordsOf(info); i++) {
            long word = SlotPlaces.firstWord(first) + i;
            boolean isLive = caches.isLive(Words.ownerOf(words.get(word)));
            if (isLive || !words.takeAll(word, SlotPlaces.all(info, i))) {
                put(first, info, i);
                return false;
            }
        }
        return true;
    }

    /// Frees all slots of the first words of a span.
    private void put(int first, int info, int count) {
        for (int i = 0; i < count; i++) {
            words.put(SlotPlaces.firstWord(first) + i, SlotPlaces.all(info, i));
        }
    }
}
