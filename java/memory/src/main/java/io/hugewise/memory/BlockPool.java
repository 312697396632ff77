package io.hugewise.memory;

import java.lang.foreign.MemorySegment;

/// Allocates blocks of one size in a memory segment, such as that of a [HugeArena]. Sizes are not rounded up.
///
/// As with a [HugeAllocator], any thread may allocate and free, mostly without a lock; memory is not
/// zeroed; a block is identified by its segment or its offset; a double free throws an exception if it is
/// detectable.
public final class BlockPool extends BlockMemory {
    private final long blockSize;

    private BlockPool(Blocks blocks, long blockSize) {
        super(blocks);
        this.blockSize = blockSize;
    }

    /// Creates a pool in the remaining memory of an arena.
    ///
    /// @param arena the arena; it is full afterwards
    /// @param blockSize size of each block in bytes, up to 16 MiB. Blocks are adjacent: each is aligned to the
    ///     largest power of two that divides the size, up to 4 KiB.
    /// @return the pool
    /// @throws IllegalArgumentException if the size is not positive or too large, or there is too little memory
    public static BlockPool of(HugeArena arena, long blockSize) {
        return of(arena.rest(), blockSize);
    }

    /// Creates a pool in a segment without other users.
    ///
    /// @param memory a native segment of at least 64 KiB
    /// @param blockSize size of each block in bytes, up to 16 MiB. Blocks are adjacent: each is aligned to the
    ///     largest power of two that divides the size, up to 4 KiB.
    /// @return the pool
    /// @throws IllegalArgumentException if the size is not positive or too large, or there is too little memory
    public static BlockPool of(MemorySegment memory, long blockSize) {
        if (blockSize <= 0 || blockSize > 16 << 20) {
            throw new IllegalArgumentException("a block has 1 to " + (16 << 20) + " bytes, not " + blockSize);
        }
        return new BlockPool(new Blocks(HugeAllocator.wholeUnits(memory), new long[] {blockSize}), blockSize);
    }

    /// Allocates a block. It is not zeroed.
    ///
    /// @return the block; it must be freed
    /// @throws MemoryExhaustedException if no block is left
    /// @throws IllegalStateException if the memory's arena is closed
    public MemorySegment allocate() {
        return memory.asSlice(allocateOffset(), blockSize);
    }

    /// Allocates a block and returns its offset in [#memory]. The block is not zeroed.
    ///
    /// @return the offset in bytes; it must be freed
    /// @throws MemoryExhaustedException if no block is left
    /// @throws IllegalStateException if the memory's arena is closed
    public long allocateOffset() {
        checkAlive();
        long offset = blocks.take(0);
        if (offset < 0) {
            throw new MemoryExhaustedException("no block of " + Bytes.text(blockSize) + " is left in "
                    + Bytes.text(memory.byteSize()) + ": free blocks, or reserve more");
        }
        return offset;
    }

    /// {@return the size of each block in bytes}
    public long blockSize() {
        return blockSize;
    }
}
