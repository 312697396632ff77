package io.hugewise.memory;

/// A run of whole units of an allocator's memory: free, or cut into blocks of one size, or one large
/// block. Nothing of it is kept in the memory itself.
final class Span {
    /// The size class of a run that is one block.
    static final int LARGE = -1;
    /// The size class of a free run.
    static final int FREE = -2;

    private static final int SHIFT = 40;

    /// Where it begins, in units.
    final int first;
    /// How many units it has.
    final int units;
    final int sizeClass;
    /// The size of a block, in bytes.
    final long blockSize;
    /// How many blocks there are.
    final int blocks;
    /// 1 for each block that is handed out. Written by whoever takes or frees the block: no other thread
    /// has it then.
    final byte[] taken;
    /// A bit for each block that lies here, neither handed out nor in a cache; guarded by the lock of the
    /// size class.
    private final long[] here;
    private final long start;
    /// 2⁴⁰ divided by the size of a block, rounded up: exact for all offsets in a span.
    private final long inverse;
    private int available;
    /// No word before this one has a bit.
    private int firstWord;

    private Span(int first, int units, int sizeClass, long blockSize, int blocks) {
        this.first = first;
        this.start = (long) first * Spans.UNIT;
        this.units = units;
        this.sizeClass = sizeClass;
        this.blockSize = blockSize;
        this.blocks = blocks;
        this.taken = new byte[blocks];
        this.here = new long[sizeClass >= 0 ? (blocks + 63) >> 6 : 0];
        this.inverse = blocks > 1 ? ((1L << SHIFT) + blockSize - 1) / blockSize : 0;
    }

    static Span free(int first, int units) {
        return new Span(first, units, FREE, 0, 0);
    }

    static Span large(int first, int units) {
        return new Span(first, units, LARGE, (long) units * Spans.UNIT, 1);
    }

    static Span cut(int first, int units, int sizeClass, long blockSize) {
        Span span = new Span(first, units, sizeClass, blockSize, blocksIn(units, blockSize));
        for (int block = 0; block < span.blocks; block++) {
            span.give(block);
        }
        return span;
    }

    static int blocksIn(int units, long blockSize) {
        return (int) ((long) units * Spans.UNIT / blockSize);
    }

    /// Where it begins, in bytes.
    long start() {
        return start;
    }

    /// The block that holds an offset within the span.
    int blockHolding(long offset) {
        return (int) (((offset - start) * inverse) >>> SHIFT);
    }

    /// The block that begins at an offset within the span; -1 if none does.
    int blockAt(long offset) {
        long within = offset - start;
        int block = blockHolding(offset);
        return block < blocks && block * blockSize == within ? block : -1;
    }

    long offsetOf(int block) {
        return start + block * blockSize;
    }

    /// How many blocks can be taken of it.
    int available() {
        return available;
    }

    /// Takes the first block of one that has some.
    int take() {
        while (here[firstWord] == 0) {
            firstWord++;
        }
        int block = (firstWord << 6) + Long.numberOfTrailingZeros(here[firstWord]);
        here[firstWord] &= here[firstWord] - 1;
        available--;
        return block;
    }

    void give(int block) {
        here[block >> 6] |= 1L << block;
        firstWord = Math.min(firstWord, block >> 6);
        available++;
    }
}
