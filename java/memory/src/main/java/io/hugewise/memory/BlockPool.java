package io.hugewise.memory;

import java.lang.foreign.MemorySegment;

/// Blocks of one size, in a piece of memory such as that of a [HugeArena]: with no loss to rounding.
///
/// As with a [HugeAllocator], any thread may allocate and free, mostly without a lock; memory is not
/// zeroed; a block can be known by its segment or by its offset; and freeing twice is an exception where
/// that can be told.
public final class BlockPool extends BlockMemory {
    private final long blockSize;

    private BlockPool(Blocks blocks, long blockSize) {
        super(blocks);
        this.blockSize = blockSize;
    }

    /// A pool in all that an arena has left.
    ///
    /// @param arena the arena; it has nothing left then
    /// @param blockSize the size of each block, in bytes: up to 16 MiB. Blocks lie side by side: each is
    ///     aligned to the largest power of two that divides the size, up to 4 KiB.
    /// @return the pool
    /// @throws IllegalArgumentException if the size is not positive or too large, or there is too little memory
    public static BlockPool of(HugeArena arena, long blockSize) {
        return of(arena.rest(), blockSize);
    }

    /// A pool in a segment that nobody else uses.
    ///
    /// @param memory the segment: native, and of at least 64 KiB
    /// @param blockSize the size of each block, in bytes: up to 16 MiB. Blocks lie side by side: each is
    ///     aligned to the largest power of two that divides the size, up to 4 KiB.
    /// @return the pool
    /// @throws IllegalArgumentException if the size is not positive or too large, or there is too little memory
    public static BlockPool of(MemorySegment memory, long blockSize) {
        if (blockSize <= 0 || blockSize > 16 << 20) {
            throw new IllegalArgumentException("a block has 1 to " + (16 << 20) + " bytes, not " + blockSize);
        }
        return new BlockPool(new Blocks(HugeAllocator.wholeUnits(memory), new long[] {blockSize}), blockSize);
    }

    /// Allocates a block. It holds what was there before.
    ///
    /// @return the block; it must be freed
    /// @throws MemoryExhaustedException if there is none left
    /// @throws IllegalStateException if the memory's arena is closed
    public MemorySegment allocate() {
        return memory.asSlice(allocateOffset(), blockSize);
    }

    /// The same, known by its offset in [#memory].
    ///
    /// @return the offset; it must be freed
    /// @throws MemoryExhaustedException if there is none left
    /// @throws IllegalStateException if the memory's arena is closed
    public long allocateOffset() {
        checkAlive();
        long offset = blocks.take(0);
        if (offset < 0) {
            throw new MemoryExhaustedException("no block of " + Bytes.text(blockSize) + " is left in "
                    + Bytes.text(memory.byteSize()) + ": free some, or reserve more");
        }
        return offset;
    }

    /// {@return the size of each block, in bytes}
    public long blockSize() {
        return blockSize;
    }
}
