package io.hugewise.memory;

/// Block sizes in bytes: multiples of 16 up to 128, then eight per doubling. Rounding a request above 128
/// bytes up wastes less than an eighth.
final class SizeClasses {
    /// Largest block size in bytes; larger requests get whole units.
    static final int LARGEST = 64 << 10;
    /// Minimum alignment of a block, in bytes.
    static final int GRAIN = 16;

    private static final int LINEAR = 128 / GRAIN;
    private static final int STEPS_LOG2 = 3;
    /// Number of classes.
    static final int COUNT = LINEAR + 9 * (1 << STEPS_LOG2);

    private static final int[] SIZES = new int[COUNT];
    private static final int SHIFT = 40;
    /// 2⁴⁰ / size, rounded up: multiplication by it gives exact quotients for all offsets in a span.
    private static final long[] INVERSES = new long[COUNT];
    /// Blocks in a span of a class, for each number of units.
    private static final short[] BLOCKS = new short[COUNT * Units.LONGEST_RUN];
    private static final byte[] SHORTEST_SPANS = new byte[COUNT];

    static {
        for (int i = 0; i < COUNT; i++) {
            SIZES[i] = sizeOf(i);
            INVERSES[i] = ((1L << SHIFT) + SIZES[i] - 1) / SIZES[i];
            for (int units = 1; units <= Units.LONGEST_RUN; units++) {
                BLOCKS[i * Units.LONGEST_RUN + units - 1] = (short) (units * Units.UNIT / SIZES[i]);
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
        return SIZES.clone();
    }

    static int size(int index) {
        return SIZES[index];
    }

    /// Class of the smallest block of at least `size` bytes, 0 to LARGEST.
    static int of(int size) {
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
        while (index < SIZES.length && (SIZES[index] & alignment - 1) != 0) {
            index++;
        }
        return index < SIZES.length ? index : -1;
    }

    /// Whether a block consists of whole units, and is no part of a span.
    static boolean isRun(int index) {
        return SIZES[index] % Units.UNIT == 0;
    }

    /// Blocks in a span of these units.
    static int blocks(int index, int units) {
        return BLOCKS[index * Units.LONGEST_RUN + units - 1];
    }

    /// The block that contains the byte at an offset in a span.
    static int blockAt(int index, int offset) {
        return (int) ((offset * INVERSES[index]) >>> SHIFT);
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
