package io.hugewise.memory;

import java.lang.foreign.MemorySegment;

/// What allocators have in common: blocks that are freed one by one, in a piece of memory.
abstract sealed class BlockMemory permits BlockPool, HugeAllocator {
    final Blocks blocks;
    final MemorySegment memory;

    BlockMemory(Blocks blocks) {
        this.blocks = blocks;
        this.memory = blocks.memory();
    }

    /// Frees a block.
    ///
    /// @param block a segment that was allocated here, or one that begins where it does
    /// @throws IllegalArgumentException if no block begins there
    /// @throws IllegalStateException if it was freed already, or the memory's arena is closed
    public void free(MemorySegment block) {
        checkAlive();
        blocks.give(block.address() - memory.address());
    }

    /// Frees a block.
    ///
    /// @param offset its offset
    /// @throws IllegalArgumentException if no block begins there
    /// @throws IllegalStateException if it was freed already, or the memory's arena is closed
    public void freeOffset(long offset) {
        checkAlive();
        blocks.give(offset);
    }

    /// {@return the memory that offsets are counted in}
    public MemorySegment memory() {
        return memory;
    }

    /// {@return how much is taken from the memory, in bytes: by blocks in use, free blocks of the same
    /// spans, and those that threads keep}
    public long held() {
        return blocks.held();
    }

    final void checkAlive() {
        if (!memory.scope().isAlive()) {
            throw new IllegalStateException("the memory's arena is closed");
        }
    }
}
