package io.hugewise.memory;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;
import org.jspecify.annotations.Nullable;

/// Memory whose blocks are freed one by one: what a library accepts that needs memory outside the Java heap.
///
/// ```java
/// Table(BlockAllocator memory) { … }
/// ```
///
/// Any thread may allocate, and free blocks of other threads, unless an implementation says otherwise.
public interface BlockAllocator extends SegmentAllocator {
    /// Allocates a block. It need not be zeroed.
    ///
    /// @param byteSize size in bytes; 0 is like 1
    /// @param byteAlignment alignment in bytes, a power of two
    /// @return a segment of exactly this size; it must be freed
    /// @throws MemoryExhaustedException if there is not enough contiguous memory
    /// @throws IllegalArgumentException if the size is negative, or the alignment is not a power of two
    @Override
    MemorySegment allocate(long byteSize, long byteAlignment);

    /// Allocates a block, as [#allocate(long)] does, without an exception if memory is full.
    ///
    /// @param byteSize size in bytes; 0 is like 1
    /// @return a segment of exactly this size, which must be freed; null if there is not enough contiguous memory
    /// @throws IllegalArgumentException if the size is negative
    @Nullable MemorySegment tryAllocate(long byteSize);

    /// Frees a block.
    ///
    /// @param block a segment that was allocated here, or another segment with the same start
    /// @throws IllegalArgumentException if no block starts there
    /// @throws IllegalStateException if it was freed already
    void free(MemorySegment block);

    /// {@return the bytes of blocks in use, rounded up to the sizes of blocks}
    long live();
}
