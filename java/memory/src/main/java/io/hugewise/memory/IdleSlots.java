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
            if (UnitInfo.kind(info) != UnitInfo.SLOTS || UnitInfo.sizeClass(info) != of.sizeClass) {
                return;
            }
            int first = unit - UnitInfo.back(info);
            of.seal(first);
            int after = take(unit, info);
            try {
                if (after > SlotPlaces.lastSlot(info) && run.at(unit, 1)) {
                    units.untouch(unit);
                }
            } finally {
                put(unit, info, after);
                of.unseal(first);
            }
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
        for (int slot = SlotPlaces.firstSlot(info); slot <= SlotPlaces.lastSlot(info); ) {
            int count = inWord(slot, info);
            long bits = SlotPlaces.bits(slot, count);
            if ((words.get(wordOf(unit, info, slot)) & bits) != bits) {
                return false;
            }
            slot += count;
        }
        return true;
    }

    /// Takes the slots of a unit out of their words, up to one that is not free; returns the slot after the last one
    /// that was taken. The class is locked.
    private int take(int unit, int info) {
        int slot = SlotPlaces.firstSlot(info);
        while (slot <= SlotPlaces.lastSlot(info)) {
            int count = inWord(slot, info);
            if (!words.takeAll(wordOf(unit, info, slot), SlotPlaces.bits(slot, count))) {
                break;
            }
            slot += count;
        }
        return slot;
    }

    /// Frees the slots of a unit up to `after`.
    private void put(int unit, int info, int after) {
        for (int slot = SlotPlaces.firstSlot(info); slot < after; ) {
            int count = inWord(slot, info);
            words.put(wordOf(unit, info, slot), SlotPlaces.bits(slot, count));
            slot += count;
        }
    }

    /// Slots from `slot` on that are in the same unit and word.
    private static int inWord(int slot, int info) {
        return Math.min(SlotPlaces.lastSlot(info) - slot + 1, Words.SLOTS - slot % Words.SLOTS);
    }

    private static long wordOf(int unit, int info, int slot) {
        return SlotPlaces.firstWord(unit - UnitInfo.back(info)) + slot / Words.SLOTS;
    }
}
