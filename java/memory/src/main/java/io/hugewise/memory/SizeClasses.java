package io.hugewise.memory;

import java.util.Arrays;

/// Block sizes in bytes: multiples of 16 up to 128, then eight per doubling. Rounding a request above 128
/// bytes up wastes less than an eighth.
final class SizeClasses {
    /// Largest block size in bytes; larger requests get whole units.
    static final int LARGEST = 64 << 10;
    private static final int GRAIN_LOG2 = 4;
    /// Minimum alignment of a block, in bytes.
    static final int GRAIN = 1 << GRAIN_LOG2;

    private static final int LINEAR = 128 / GRAIN;
    private static final int STEPS_LOG2 = 3;
    /// Number of classes.
    static final int COUNT = LINEAR + 9 * (1 << STEPS_LOG2);

    /// The arrays have a power of two elements, so that the compiler can omit checks of masked indices.
    private static final int MASK = 127;

    private static final int[] SIZES = new int[MASK + 1];
    private static final int SHIFT = 40;
    /// 2⁴⁰ / size, rounded up: multiplication by it gives exact quotients for all offsets in a span.
    private static final long[] INVERSES = new long[MASK + 1];
    private static final int CLASS_LOG2 = 7;
    /// Blocks in a span, by its units − 1 and, in the low bits, its class.
    private static final short[] BLOCKS = new short[(MASK + 1) * Units.LONGEST_RUN];
    private static final byte[] SHORTEST_SPANS = new byte[COUNT];
    /// Sizes whose classes are in a table.
    private static final int TABLED = 1024;
    private static final byte[] TABLE = new byte[MASK + 1];

    static {
        for (int i = 0; i <= TABLED / GRAIN; i++) {
            TABLE[i] = (byte) computed(i * GRAIN);
        }
        for (int i = 0; i < COUNT; i++) {
            SIZES[i] = sizeOf(i);
            INVERSES[i] = ((1L << SHIFT) + SIZES[i] - 1) / SIZES[i];
            for (int units = 1; units <= Units.LONGEST_RUN; units++) {
                BLOCKS[(units - 1) << CLASS_LOG2 | i] = (short) (units * Units.UNIT / SIZES[i]);
            }
            SHORTEST_SPANS[i] = (byte) findShortestSpan(i);
        }
    }

    private SizeClasses() {}

    private static int sizeOf(int index) {
        if (index < LINEAR) {
            return (index + 1) * GRAIN;
        }
        int doubling = (index - LINEAR) >> STEPS_LOG2;
        int step = (index - LINEAR & (1 << STEPS_LOG2) - 1) + 1;
        return (128 << doubling) + step * (GRAIN << doubling);
    }

    static int[] sizes() {
        return Arrays.copyOf(SIZES, COUNT);
    }

    static int size(int index) {
        return SIZES[index & MASK];
    }

    /// Class of the smallest block of at least `size` bytes, 0 to LARGEST.
    static int of(int size) {
        return size <= TABLED ? TABLE[((size + GRAIN - 1) >>> GRAIN_LOG2) & MASK] : computed(size);
    }

    private static int computed(int size) {
        if (size <= 128) {
            return size == 0 ? 0 : (size - 1) / GRAIN;
        }
        int doubling = 24 - Integer.numberOfLeadingZeros(size - 1);
        return LINEAR + (doubling << STEPS_LOG2) + ((size - 1 - (128 << doubling)) >> (4 + doubling));
    }

    /// Class of the smallest block of at least `size` bytes with this alignment, a power of two up to
    /// [Units#UNIT]; -1 if there is none.
    static int of(int size, int alignment) {
        int index = of(Math.max(size, alignment));
        while (index < COUNT && (SIZES[index] & alignment - 1) != 0) {
            index++;
        }
        return index < COUNT ? index : -1;
    }

    /// Whether a block consists of whole units, and is no part of a span.
    static boolean isRun(int index) {
        return SIZES[index & MASK] % Units.UNIT == 0;
    }

    /// Blocks in a span of these units.
    static int blocks(int index, int units) {
        return blocks((units - 1) << CLASS_LOG2 | index);
    }

    /// Blocks in a span, whose units − 1 and class are the low bits of an int.
    static int blocks(int unitsAndClass) {
        return BLOCKS[unitsAndClass & BLOCKS.length - 1];
    }

    /// The block that contains the byte at an offset in a span.
    static int blockAt(int index, int offset) {
        return (int) ((offset * INVERSES[index & MASK]) >>> SHIFT);
    }

    /// Units of the shortest span with four blocks or more that wastes little at its end.
    static int shortestSpan(int index) {
        return SHORTEST_SPANS[index];
    }

    private static int findShortestSpan(int index) {
        int fewest = Math.min(Units.LONGEST_RUN, (4 * SIZES[index] + Units.UNIT - 1) / Units.UNIT);
        int best = fewest;
        for (int units = fewest; units <= Units.LONGEST_RUN && lost(index, best) > 1.0 / 32; units++) {
            best = lost(index, units) < lost(index, best) ? units : best;
        }
        return best;
    }

    private static double lost(int index, int units) {
        double bytes = (double) units * Units.UNIT;
        return (bytes - blocks(index, units) * (double) SIZES[index]) / bytes;
    }
}
