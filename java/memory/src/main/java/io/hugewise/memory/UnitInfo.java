package io.hugewise.memory;

/// What lies in a unit, as an int; 0 if no block starts in it.
///
/// ```text
///  31  30  29  28  27    21  20  19  18   14 13      9 8       2 1    0
/// │ L │ E │ S │ C │      │ H │ Q │   │ back  │ units−1 │ class   │ kind │
/// ```
///
/// `back` is the distance to the first unit of the span. In that unit alone, `Q` is set while the span is queued
/// for its class, `H` once it is in the heap of the queue, `E` while it is empty and kept, and `S` while free slots are
/// not in its words: a thread that frees a slot waits until it is cleared. `C` is set while a run is in a cache. The second unit of a large block has `L` set,
/// and its length in units in all other bits.
final class UnitInfo {
    /// A span of slots of one class.
    static final int SLOTS = 1;
    /// The first unit of a block of 1 to 16 units.
    static final int RUN = 2;
    /// The first unit of a larger block.
    static final int LARGE = 3;

    static final int QUEUED = 1 << 20;
    static final int HEAPED = 1 << 21;
    static final int CACHED = 1 << 28;
    static final int SEALED = 1 << 29;
    static final int KEPT = 1 << 30;

    private static final int LENGTH = Integer.MIN_VALUE;
    private static final int IDENTITY = (1 << 19) - 1;
    private static final int BACK = 31 << 14;

    private UnitInfo() {}

    static int slots(int sizeClass, int back, int units) {
        return back << 14 | (units - 1) << 9 | sizeClass << 2 | SLOTS;
    }

    static int run(int sizeClass, int units) {
        return (units - 1) << 9 | sizeClass << 2 | RUN;
    }

    static int length(int units) {
        return units | LENGTH;
    }

    static int lengthOf(int info) {
        return info & ~LENGTH;
    }

    /// Whether it is a unit of a span of slots.
    static boolean isOfSlots(int info) {
        return (info & (LENGTH | 3)) == SLOTS;
    }

    static int kind(int info) {
        return info < 0 ? 0 : info & 3;
    }

    static int sizeClass(int info) {
        return (info >>> 2) & 127;
    }

    static int back(int info) {
        return (info >>> 14) & 31;
    }

    static int units(int info) {
        return ((info >>> 9) & 31) + 1;
    }

    /// Slots of a span.
    static int slots(int info) {
        return SizeClasses.blocks(info >>> 2);
    }

    /// Whether a unit is the first one of the span that another reading was of.
    static boolean isFirstOf(int info, int ofSpan) {
        return ((info ^ (ofSpan & ~BACK)) & IDENTITY) == 0;
    }
}
