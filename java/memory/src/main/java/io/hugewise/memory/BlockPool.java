package io.hugewise.memory;

import io.hugewise.memory.internal.Stack;
import java.lang.foreign.MemorySegment;

/// Allocates blocks of one size in a memory segment, such as that of a [HugeArena]. Sizes are not rounded up.
///
/// As with a [HugeAllocator], any thread may allocate and free, mostly without a lock; memory is not
/// zeroed; a block is identified by its segment or its offset; a double free throws an exception if it is
/// detectable.
public final class BlockPool {
    /// The cells hold at most 1/50 of the blocks.
    private static final int CELLS_PART = 50;

    private final MemorySegment memory;
    private final EqualBlocks blocks;
    private final long blockSize;

    private BlockPool(MemorySegment memory, long blockSize) {
        this.memory = memory;
        this.blockSize = blockSize;
        int count = (int) Math.min(memory.byteSize() / blockSize, Integer.MAX_VALUE - Words.SLOTS);
        int most = Integer.highestOneBit(4 * Runtime.getRuntime().availableProcessors());
        int stripes = Math.clamp(Integer.highestOneBit(count / CELLS_PART), 1, most);
        int quota = Math.clamp(count / CELLS_PART / stripes, 1, Words.SLOTS);
        this.blocks = new EqualBlocks(count, stripes, quota);
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
        return new BlockPool(HugeAllocator.wholeUnits(memory), blockSize);
    }

    /// Allocates a block. It is not zeroed.
    ///
    /// @return the block; it must be freed
    /// @throws MemoryExhaustedException if no block is left
    /// @throws IllegalStateException if the memory's arena is closed
    public MemorySegment allocate() {
        long offset = allocateOffset();
        try {
            return memory.asSlice(offset, blockSize);
        } catch (Throwable error) {
            // The heap has no memory for the segment.
            freeOffset(offset);
            throw error;
        }
    }

    /// Allocates a block and returns its offset in [#memory]. The block is not zeroed.
    ///
    /// @return the offset in bytes; it must be freed
    /// @throws MemoryExhaustedException if no block is left
    /// @throws IllegalStateException if the memory's arena is closed
    public long allocateOffset() {
        Stack.claim();
        checkAlive();
        int block = blocks.take();
        if (block < 0) {
            throw new MemoryExhaustedException("no block of " + Bytes.text(blockSize) + " is left in "
                    + Bytes.text(memory.byteSize()) + ": free blocks, or reserve more", blockSize, 0);
        }
        return block * blockSize;
    }

    /// {@return the size of each block in bytes}
    public long blockSize() {
        return blockSize;
    }

    /// Frees a block.
    ///
    /// @param block a segment that was allocated here, or another segment with the same start
    /// @throws IllegalArgumentException if no block starts there
    /// @throws IllegalStateException if it was freed already, or the memory's arena is closed
    public void free(MemorySegment block) {
        freeOffset(block.address() - memory.address());
    }

    /// Frees a block.
    ///
    /// @param offset its offset in [#memory], in bytes
    /// @throws IllegalArgumentException if no block starts there
    /// @throws IllegalStateException if it was freed already, or the memory's arena is closed
    public void freeOffset(long offset) {
        Stack.claim();
        checkAlive();
        long block = Math.floorDiv(offset, blockSize);
        if (offset < 0 || block >= blocks.count() || block * blockSize != offset) {
            throw Blocks.noBlock();
        }
        if (!blocks.give((int) block)) {
            throw new IllegalStateException("the block at offset " + offset + " was freed already");
        }
    }

    /// {@return the memory that offsets refer to}
    public MemorySegment memory() {
        return memory;
    }

    /// {@return the bytes of blocks in use}
    public long held() {
        return blocks.taken() * blockSize;
    }

    private void checkAlive() {
        if (!memory.scope().isAlive()) {
            throw new IllegalStateException("the memory's arena is closed");
        }
    }
}
