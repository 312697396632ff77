package io.hugewise.memory;

/// A run of units of an allocator's memory: free, divided into blocks of one size, or one large block. Its
/// metadata is outside that memory.
final class Span {
    /// Size class of a run that is one block.
    static final int LARGE = -1;
    /// Size class of a free run.
    static final int FREE = -2;

    private static final int SHIFT = 40;

    /// First unit.
    final int first;
    /// Number of units.
    final int units;
    final int sizeClass;
    /// Size of a block in bytes.
    final long blockSize;
    /// Number of blocks.
    final int blocks;
    /// 1 for each allocated block. Written without a lock by the thread that takes or frees the block, which
    /// owns it at that moment.
    final byte[] taken;
    /// One bit per block that is neither allocated nor in a cache; guarded by the lock of the size class.
    private final long[] here;
    private final long start;
    /// 2⁴⁰ / block size, rounded up: multiplication by it gives exact quotients for all offsets in a span.
    private final long inverse;
    private int available;
    /// All words of `here` before this index are 0.
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

    /// Offset of the span in bytes.
    long start() {
        return start;
    }

    /// Index of the block that contains an offset of this span.
    int blockHolding(long offset) {
        return (int) (((offset - start) * inverse) >>> SHIFT);
    }

    /// Index of the block that starts at an offset of this span; -1 if none does.
    int blockAt(long offset) {
        long within = offset - start;
        int block = blockHolding(offset);
        return block < blocks && block * blockSize == within ? block : -1;
    }

    long offsetOf(int block) {
        return start + block * blockSize;
    }

    /// Number of blocks that can be taken.
    int available() {
        return available;
    }

    /// Takes the first available block; there must be one.
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
