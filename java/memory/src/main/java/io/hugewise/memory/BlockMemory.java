package io.hugewise.memory;

import java.lang.foreign.MemorySegment;

/// Common part of the allocators: blocks in a memory segment, freed one by one.
abstract sealed class BlockMemory permits BlockPool, HugeAllocator {
    final Blocks blocks;
    final MemorySegment memory;

    BlockMemory(Blocks blocks) {
        this.blocks = blocks;
        this.memory = blocks.memory();
    }

    /// Frees a block.
    ///
    /// @param block a segment that was allocated here, or another segment with the same start
    /// @throws IllegalArgumentException if no block starts there
    /// @throws IllegalStateException if it was freed already, or the memory's arena is closed
    public void free(MemorySegment block) {
        checkAlive();
        blocks.give(block.address() - memory.address());
    }

    /// Frees a block.
    ///
    /// @param offset its offset in [#memory], in bytes
    /// @throws IllegalArgumentException if no block starts there
    /// @throws IllegalStateException if it was freed already, or the memory's arena is closed
    public void freeOffset(long offset) {
        checkAlive();
        blocks.give(offset);
    }

    /// {@return the memory that offsets refer to}
    public MemorySegment memory() {
        return memory;
    }

    /// {@return the held bytes: blocks in use, free blocks of the same spans, and free blocks cached by
    /// threads}
    public long held() {
        return blocks.held();
    }

    final void checkAlive() {
        if (!memory.scope().isAlive()) {
            throw new IllegalStateException("the memory's arena is closed");
        }
    }
}
