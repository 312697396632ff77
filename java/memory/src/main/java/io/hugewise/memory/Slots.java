package io.hugewise.memory;

/// Blocks of the classes whose sizes are no multiples of a unit: slots in spans of 1 to 32 units.
///
/// A free slot is a bit in the word of its span: in the half that is shared, or in that of the cache that owns the word.
/// A thread takes slots from its cache, and frees slots of words that its cache owns into it, without an atomic
/// operation; slots of other words by one. The lock of a class orders the beginning and end of spans. A word gets
/// an owner by one atomic operation, based on a reading without a live one. Locks are taken in this order: a cache is
/// entered, then a class is locked.
final class Slots {
    /// All classes together keep at most 1/32 of the memory in empty spans, and each at most 256 KiB.
    private static final int KEPT_PART = 32;

    private static final int MOST_KEPT = 64;
    private static final int NONE = -1;

    /// Answers of an attempt to free a slot.
    private enum Freeing {
        DONE,
        REFUSED,
        /// The slot's word is not owned by the cache of the calling thread.
        NOT_OWNED,
        /// Something has changed in the meantime.
        AGAIN
    }

    private final Units units;
    private final Words words;
    private final SlotCaches caches;
    private final SlotClass[] classes = new SlotClass[SizeClasses.COUNT];
    private final IdleSlots idle;
    private final SlotFastPath fastPath;

    Slots(Units units, long bytes, int stripes) {
        this.units = units;
        this.words = new Words((long) units.count() << SlotPlaces.WORDS_LOG2);
        SlotPlaces places = new SlotPlaces(units);
        int[] links = new int[units.count()];
        this.caches = new SlotCaches(words, places, units, links, classes, bytes, stripes);
        this.fastPath = new SlotFastPath(units, words, places, classes, caches.ownedStates(), caches.sharedStates());
        this.idle = new IdleSlots(units, words, classes);
        int mostKept = Math.min(MOST_KEPT, units.count() / KEPT_PART / SizeClasses.COUNT);
        for (int c = 0; c < classes.length; c++) {
            classes[c] = new SlotClass(c, units, words, caches, new SpanQueue(units, c, links), mostKept);
        }
    }

    SlotFastPath fastPath() {
        return fastPath;
    }

    SlotCaches caches() {
        return caches;
    }

    // Taking

    /// Takes a slot out of the cache of the calling thread; returns its offset from unit 0, -1 if there is none.
    long take(int sizeClass) {
        SlotCache cache = caches.enter();
        try {
            return cache.take(sizeClass);
        } finally {
            cache.leave();
        }
    }

    /// Takes any slot, and puts others into the cache of the calling thread; returns its offset, -1 if there is none.
    long refill(int sizeClass) {
        SlotCache cache = caches.enter();
        try {
            caches.takeBack(cache);
            SlotClass of = classes[sizeClass];
            of.lock.lock();
            try {
                return refill(of, cache);
            } finally {
                of.lock.unlock();
            }
        } finally {
            cache.leave();
        }
    }

    private long refill(SlotClass of, SlotCache cache) {
        long slot = NONE;
        for (int first = cache.takeReturned(of.sizeClass); first != SpanQueue.NONE; ) {
            int span = first;
            first = of.queue.unlink(first);
            slot = grab(of, cache, span, slot);
        }
        while (slot < 0) {
            int first = of.queue.poll();
            first = first < 0 ? of.begin() : first;
            if (first < 0) {
                return NONE;
            }
            slot = grab(of, cache, first, NONE);
        }
        return slot;
    }

    /// Moves the free slots of a span into a cache, as many as it may keep, except those of words that others own. Takes
    /// one of them, unless `slot` is taken already; returns the taken slot, -1 if there is none.
    private long grab(SlotClass of, SlotCache cache, int first, long slot) {
        int sizeClass = of.sizeClass;
        int size = SizeClasses.size(sizeClass);
        of.use(first);
        boolean isMore = false;
        int other = 0;
        int count = SlotPlaces.wordsOf(units.info(first));
        for (int i = 0; i < count; i++) {
            long word = SlotPlaces.firstWord(first) + i;
            long now = words.get(word);
            if ((now & Words.FREE) == 0) {
                continue;
            }
            if (isOfAnother(cache, now)) {
                other = Words.ownerOf(now);
                continue;
            }
            int most = (int) Math.min(Words.SLOTS, room(cache, size) / size) + (slot < 0 ? 1 : 0);
            long bits = own(cache, word, most);
            isMore |= (words.get(word) & Words.FREE) != 0;
            if (bits == 0) {
                continue;
            }
            touch(sizeClass, first, i, bits);
            long offset = SlotPlaces.offset(first, i, sizeClass);
            if (slot < 0) {
                slot = offset + Long.numberOfTrailingZeros(bits) * (long) size;
                bits &= bits - 1;
            }
            if (bits != 0) {
                cache.add(sizeClass, word, words.own(word), offset, bits, Long.bitCount(bits) * (long) size);
            }
        }
        if (isMore) {
            of.queue.add(first);
        } else if (other != 0) {
            caches.giveBack(sizeClass, other, first);
        }
        return slot;
    }

    /// Takes free slots of a word for a cache, at most `most`; returns them as bits, 0 if there are none, or another cache
    /// owns the word by now: a free needs no lock to own one.
    private long own(SlotCache cache, long word, int most) {
        while (true) {
            long now = words.get(word);
            long bits = isOfAnother(cache, now) ? 0 : Words.lowest(now & Words.FREE, most);
            if (bits == 0 || words.own(word, now, bits, cache.tag())) {
                return bits;
            }
        }
    }

    /// Whether a word, as it was read, is in use by another cache.
    private boolean isOfAnother(SlotCache cache, long shared) {
        int owner = Words.ownerOf(shared);
        return owner != cache.tag() && caches.isLive(owner);
    }

    private long room(SlotCache cache, int size) {
        if (cache.room() < (long) size * Words.SLOTS) {
            caches.grant(cache, size);
        }
        return Math.max(0, cache.room());
    }

    /// Marks the units of slots of a word.
    private void touch(int sizeClass, int first, int word, long bits) {
        int size = SizeClasses.size(sizeClass);
        int from = (word * Words.SLOTS + Long.numberOfTrailingZeros(bits)) * size;
        int to = (word * Words.SLOTS + Long.SIZE - Long.numberOfLeadingZeros(bits)) * size;
        int begin = from >>> Units.UNIT_LOG2;
        units.touch(first + begin, ((to - 1) >>> Units.UNIT_LOG2) - begin + 1);
    }

    /// Frees the units of all spans without blocks, and puts the free slots of all caches within reach of all threads.
    void reclaim() {
        drain();
        for (SlotClass of : classes) {
            if (of.isUsed()) {
                of.lock.lock();
                try {
                    of.endEmpty();
                } finally {
                    of.lock.unlock();
                }
            }
        }
    }

    /// Puts the free slots of all caches within reach of all threads.
    void drain() {
        caches.drain();
    }

    // Freeing

    /// Frees a slot.
    ///
    /// @param unit the unit of the offset, which is in a span of slots
    /// @param offset offset from unit 0
    /// @return false if it is free already
    /// @throws IllegalArgumentException if no slot starts there
    boolean give(int unit, long offset) {
        for (int spins = 0; ; spins++) {
            Freeing freeing = giveToCache(unit, offset);
            if (freeing == Freeing.NOT_OWNED) {
                freeing = giveToWord(unit, offset);
                caches.rebalance();
            }
            if (freeing != Freeing.AGAIN) {
                return freeing == Freeing.DONE;
            }
            SpinLock.pause(spins);
        }
    }

    /// The slot of a span that starts at an offset.
    private static int slotAt(int info, int first, long offset) {
        int slot = UnitInfo.kind(info) == UnitInfo.SLOTS
                ? SlotPlaces.slotAt(UnitInfo.sizeClass(info), info, first, offset)
                : NONE;
        if (slot < 0) {
            throw Blocks.noBlock();
        }
        return slot;
    }

    private Freeing giveToCache(int unit, long offset) {
        // Before the cache is entered, because its fences let the compiler keep nothing that it reads again.
        Words everyWord = words;
        SlotCaches everyCache = caches;
        Units everyUnit = units;
        SlotCache cache = everyCache.enter();
        try {
            // A span with a word of a cache does not end while the cache is in use.
            int info = everyUnit.info(unit);
            int first = unit - UnitInfo.back(info);
            int slot = slotAt(info, first, offset);
            int ofSpan = slot >>> Words.SLOTS_LOG2;
            long word = SlotPlaces.firstWord(first) + ofSpan;
            long shared = everyWord.get(word);
            int sizeClass = UnitInfo.sizeClass(info);
            int size = SizeClasses.size(sizeClass);
            boolean isOwned = Words.ownerOf(shared) == cache.tag();
            if ((!isOwned && isOfAnother(cache, shared))
                    || (cache.room() < size && !everyCache.grant(cache, size))) {
                return Freeing.NOT_OWNED;
            }
            long own = everyWord.own(word);
            long bit = 1L << (slot & Words.SLOTS - 1);
            if (((shared | own) & bit) != 0) {
                return Freeing.REFUSED;
            }
            if (!isOwned && !adopt(first, info, word, shared, cache)) {
                return Freeing.AGAIN;
            }
            cache.add(sizeClass, word, own, SlotPlaces.offset(first, ofSpan, sizeClass), bit, size);
            if (everyUnit.scarcity().isScarce()) {
                classes[sizeClass].noteFreed(info, ofSpan, (shared | own) & Words.FREE, bit);
            }
            return Freeing.DONE;
        } finally {
            cache.leave();
        }
    }

    /// Gives a word that was read to a cache, unless it has changed. No lock is needed: the slot that is being freed keeps
    /// the span from ending.
    private boolean adopt(int first, int info, long word, long shared, SlotCache cache) {
        int now = units.info(first);
        if (!UnitInfo.isFirstOf(now, info)) {
            throw Blocks.noBlock();
        }
        // If the span was sealed before the word was read, the slot may be free and not in it.
        return (now & UnitInfo.SEALED) == 0 && words.own(word, shared, 0, cache.tag());
    }

    private Freeing giveToWord(int unit, long offset) {
        int ofUnit = units.info(unit);
        int first = unit - UnitInfo.back(ofUnit);
        int slot = slotAt(ofUnit, first, offset);
        int info = units.info(first);
        if (!UnitInfo.isFirstOf(info, ofUnit)) {
            throw Blocks.noBlock();
        }
        SlotClass of = classes[UnitInfo.sizeClass(info)];
        int ofSpan = slot >>> Words.SLOTS_LOG2;
        long bit = 1L << (slot & Words.SLOTS - 1);
        long word = SlotPlaces.firstWord(first) + ofSpan;
        long before = words.get(word);
        long own = words.own(word) & Words.FREE;
        // If the span was sealed before the word was read, the slot may be free and not in it.
        if ((info & UnitInfo.SEALED) != 0 || units.info(first) != info) {
            return Freeing.AGAIN;
        }
        if (((before | own) & bit) != 0) {
            return Freeing.REFUSED;
        }
        if (!words.give(word, before, bit)) {
            return Freeing.AGAIN;
        }
        long free = before & Words.FREE;
        if (free == 0) {
            caches.giveBack(of.sizeClass, Words.ownerOf(before), first);
            caches.drainUnused(Words.ownerOf(before));
        }
        of.noteFreed(info, ofSpan, free, bit);
        if ((free | bit) == SlotPlaces.all(info, ofSpan)) {
            of.endIfEmpty(first);
        }
        return Freeing.DONE;
    }

    /// Whether a slot that starts at the offset is taken.
    boolean isTaken(int unit, int info, long offset) {
        int sizeClass = UnitInfo.sizeClass(info);
        int first = unit - UnitInfo.back(info);
        int slot = SlotPlaces.slotAt(sizeClass, info, first, offset);
        return slot >= 0 && (free(SlotPlaces.firstWord(first) + slot / Words.SLOTS) >>> slot % Words.SLOTS & 1) == 0;
    }

    /// The free slots of a word: while others take and free some, those of a moment.
    private long free(long word) {
        return (words.get(word) | words.own(word)) & Words.FREE;
    }

    /// As [IdleSlots#untouch].
    long untouch(int from, long wanted, Units.Run run) {
        return idle.untouch(from, wanted, run);
    }

    // Figures

    /// Bytes of the slots of a span that are taken.
    long taken(int first, int info) {
        int sizeClass = UnitInfo.sizeClass(info);
        int taken = SizeClasses.blocks(sizeClass, UnitInfo.units(info));
        for (int i = 0; i < SlotPlaces.wordsOf(info); i++) {
            taken -= Long.bitCount(free(SlotPlaces.firstWord(first) + i));
        }
        return taken * (long) SizeClasses.size(sizeClass);
    }

    /// Changes if a slot of a class became free where none was.
    int events(int sizeClass) {
        return classes[sizeClass].events();
    }
}
