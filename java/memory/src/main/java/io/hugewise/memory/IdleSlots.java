package io.hugewise.memory;

/// Units inside of spans whose slots are all free: their memory can be returned to the kernel.
final class IdleSlots {
    private final Units units;
    private final Words words;
    private final SlotClass[] classes;

    IdleSlots(Units units, Words words, SlotClass[] classes) {
        this.units = units;
        this.words = words;
        this.classes = classes;
    }

    /// Of the units of a chunk that begins with `from`: calls `run` for those of `wanted`, as bits, in which all slots
    /// are free, and marks them as untouched. Returns such units that are not wanted, and are touched.
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
                untouch(unit, classes[UnitInfo.sizeClass(info)], run);
            }
        }
        return idle;
    }

    private void untouch(int unit, SlotClass of, Units.Run run) {
        of.lock.lock();
        try {
            int info = units.info(unit);
            // The span may have ended, and another one may have begun.
            if (UnitInfo.kind(info) != UnitInfo.SLOTS || UnitInfo.sizeClass(info) != of.sizeClass || !isIdle(unit, info)) {
                return;
            }
            int first = unit - UnitInfo.back(info);
            takeAll(unit, info, true);
            if (run.at(unit, 1)) {
                units.untouch(unit);
            }
            takeAll(unit, info, false);
            // What others freed meanwhile did not find an empty span.
            if (of.isEmpty(first)) {
                of.keepOrEnd(first);
            }
            of.queue.add(first);
            of.noteFreed();
        } finally {
            of.lock.unlock();
        }
    }

    /// Whether all slots with a byte in a unit are free, in their words.
    private boolean isIdle(int unit, int info) {
        int first = unit - UnitInfo.back(info);
        int last = SlotPlaces.lastSlot(info);
        for (int slot = SlotPlaces.firstSlot(info); slot <= last; ) {
            int count = Math.min(last - slot + 1, Words.SLOTS - slot % Words.SLOTS);
            long bits = SlotPlaces.bits(slot, count);
            if ((words.get(SlotPlaces.firstWord(first) + slot / Words.SLOTS) & bits) != bits) {
                return false;
            }
            slot += count;
        }
        return true;
    }

    /// Takes the free slots of a unit out of their words, or puts them back. The class is locked.
    private void takeAll(int unit, int info, boolean out) {
        int first = unit - UnitInfo.back(info);
        int last = SlotPlaces.lastSlot(info);
        for (int slot = SlotPlaces.firstSlot(info); slot <= last; ) {
            int count = Math.min(last - slot + 1, Words.SLOTS - slot % Words.SLOTS);
            long word = SlotPlaces.firstWord(first) + slot / Words.SLOTS;
            if (out) {
                words.take(word, SlotPlaces.bits(slot, count));
            } else {
                words.put(word, SlotPlaces.bits(slot, count));
            }
            slot += count;
        }
    }
}
