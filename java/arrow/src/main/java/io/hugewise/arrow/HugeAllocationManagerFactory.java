package io.hugewise.arrow;

import io.hugewise.memory.BlockAllocator;
import io.hugewise.memory.MemoryExhaustedException;
import java.lang.foreign.MemorySegment;
import org.apache.arrow.memory.AllocationManager;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.memory.ReferenceManager;

/// Makes blocks, such as those of a [io.hugewise.memory.HugeAllocator], the memory of Arrow's buffers.
///
/// ```java
/// var factory = new HugeAllocationManagerFactory(HugeAllocator.of(arena));
/// try (var allocator = new RootAllocator(RootAllocator.configBuilder().allocationManagerFactory(factory).build())) {
///     …
/// }
/// ```
///
/// Buffers are aligned to 64 bytes and not zeroed. If memory is full, Arrow's [OutOfMemoryException] has the
/// [MemoryExhaustedException] as its cause.
///
/// Arrow accesses memory by address and does not check whether it exists. Close the allocators of Arrow before the arena,
/// which must not be confined if other threads use buffers.
public final class HugeAllocationManagerFactory implements AllocationManager.Factory {
    /// Alignment in bytes that Arrow's format recommends.
    private static final long ALIGNMENT = 64;

    private final BlockAllocator memory;
    private final ArrowBuf empty = new ArrowBuf(ReferenceManager.NO_OP, null, 0, 0);

    /// Creates a factory.
    ///
    /// @param memory its blocks become the buffers
    public HugeAllocationManagerFactory(BlockAllocator memory) {
        this.memory = memory;
    }

    @Override
    public AllocationManager create(BufferAllocator accountingAllocator, long size) {
        MemorySegment block;
        try {
            block = memory.allocate(size, ALIGNMENT);
        } catch (MemoryExhaustedException full) {
            throw new OutOfMemoryException(full.getMessage(), full);
        }
        try {
            return new BlockManager(accountingAllocator, memory, block);
        } catch (Throwable error) {
            memory.free(block);
            throw error;
        }
    }

    @Override
    public ArrowBuf empty() {
        return empty;
    }

    private static final class BlockManager extends AllocationManager {
        private final BlockAllocator memory;
        private final MemorySegment block;

        BlockManager(BufferAllocator accountingAllocator, BlockAllocator memory, MemorySegment block) {
            super(accountingAllocator);
            this.memory = memory;
            this.block = block;
        }

        @Override
        public long getSize() {
            return block.byteSize();
        }

        @Override
        protected long memoryAddress() {
            return block.address();
        }

        @Override
        protected void release0() {
            memory.free(block);
        }
    }
}
