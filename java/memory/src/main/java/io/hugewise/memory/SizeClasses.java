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
    private static final int[] SIZES = new int[LINEAR + 9 * (1 << STEPS_LOG2)];

    static {
        for (int i = 0; i < SIZES.length; i++) {
            SIZES[i] = sizeOf(i);
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
    /// [Spans#UNIT]; -1 if there is none.
    static int of(int size, int alignment) {
        int index = of(Math.max(size, alignment));
        while (index < SIZES.length && (SIZES[index] & alignment - 1) != 0) {
            index++;
        }
        return index < SIZES.length ? index : -1;
    }
}
