package io.hugewise.memory;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;

/// Allocates blocks of any size, freed one by one, in a memory segment such as that of a [HugeArena]. It
/// replaces `malloc` and `Unsafe.allocateMemory`.
///
/// ```java
/// HugeAllocator allocator = HugeAllocator.of(arena);
/// MemorySegment row = allocator.allocate(592);
/// allocator.free(row);
/// ```
///
/// Any thread may allocate, and free blocks of other threads. Each thread caches some free blocks, so
/// allocating and freeing normally take no lock; blocks cached by a thread that has ended are reused. Memory
/// is not zeroed.
/// There are 80 block sizes up to 64 KiB, which waste less than an eighth of a request (up to 15 bytes below
/// 128), and multiples of 4 KiB above. Each block is aligned to 16 bytes.
///
/// # By segment or by offset
///
/// [#allocate(long)] returns a segment. To avoid an object per block, [#allocateOffset] returns the block's
/// offset in [#memory], a number. Each access by either is checked: access beyond the memory, or after the
/// arena was closed, throws an exception and never crashes.
///
/// ```java
/// static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;
/// MemorySegment entry = allocator.memory().asSlice(offset, 64); // bounds are checked here, once
/// long key = entry.get(LONG, 0);
/// long next = entry.get(LONG, 8);
/// ```
///
/// A double free and an offset without a block throw an exception if they are detectable. A double free is
/// not detectable if two threads free the same block at the same moment, or if the block has been reused:
/// then it belongs to its new owner. Writes through [#memory] beyond the end of a block change another block,
/// undetected.
///
/// # Costs
///
/// Metadata is on the Java heap, not in the memory: 4 bytes per 4 KiB of memory (8 with a heap of 32 GiB or
/// more), and for memory in use an object per span (one or more adjacent blocks of the same size), and a byte
/// and a bit per block. Per 4 KiB in use that is about 170 bytes with blocks of 64 bytes, 120 with 1 KiB, 60
/// with 4 KiB, 8 with 64 KiB.
public final class HugeAllocator implements SegmentAllocator {

    private final MemorySegment memory;
    private final Blocks blocks;

    private HugeAllocator(MemorySegment memory, Blocks blocks) {
        this.memory = memory;
        this.blocks = blocks;
    }

    /// Creates an allocator in the remaining memory of an arena.
    ///
    /// @param arena the arena; it is full afterwards
    /// @return the allocator
    /// @throws IllegalArgumentException if there is too little memory
    public static HugeAllocator of(HugeArena arena) {
        return of(arena.rest());
    }

    /// Creates an allocator in a segment without other users.
    ///
    /// @param memory a native segment of at least 64 KiB
    /// @return the allocator
    /// @throws IllegalArgumentException if it is on the heap, read-only, or too small
    public static HugeAllocator of(MemorySegment memory) {
        MemorySegment whole = wholeUnits(memory);
        return new HugeAllocator(whole, new Blocks(whole.address(), whole.byteSize()));
    }

    /// The part of a segment that consists of whole units.
    static MemorySegment wholeUnits(MemorySegment memory) {
        if (!memory.isNative() || memory.isReadOnly()) {
            throw new IllegalArgumentException("native memory that can be written is needed, not " + memory);
        }
        long skipped = -memory.address() & Units.UNIT - 1;
        long size = memory.byteSize() - skipped & -Units.UNIT;
        if (size < SizeClasses.LARGEST) {
            throw new IllegalArgumentException(Bytes.text(memory.byteSize()) + " are too little for an allocator");
        }
        return memory.asSlice(skipped, size);
    }

    /// Allocates a block. It is not zeroed.
    ///
    /// @param byteSize size in bytes; 0 is like 1
    /// @param byteAlignment alignment in bytes, a power of two
    /// @return a segment of exactly this size; it must be freed
    /// @throws MemoryExhaustedException if there is not enough contiguous memory
    /// @throws IllegalArgumentException if the size is negative, or the alignment is not a power of two
    /// @throws IllegalStateException if the memory's arena is closed
    @Override
    public MemorySegment allocate(long byteSize, long byteAlignment) {
        return memory.asSlice(allocateOffset(byteSize, byteAlignment), byteSize);
    }

    /// Allocates a block aligned to 16 bytes. It is not zeroed.
    ///
    /// @param byteSize size in bytes; 0 is like 1
    /// @return a segment of exactly this size; it must be freed
    /// @throws MemoryExhaustedException if there is not enough contiguous memory
    /// @throws IllegalArgumentException if the size is negative
    /// @throws IllegalStateException if the memory's arena is closed
    @Override
    public MemorySegment allocate(long byteSize) {
        return memory.asSlice(allocateOffset(byteSize), byteSize);
    }

    /// Allocates a block aligned to 16 bytes and returns its offset in [#memory]. It is not zeroed.
    ///
    /// @param byteSize size in bytes; 0 is like 1
    /// @return the offset in bytes; it must be freed
    /// @throws MemoryExhaustedException if there is not enough contiguous memory
    /// @throws IllegalArgumentException if the size is negative
    /// @throws IllegalStateException if the memory's arena is closed
    public long allocateOffset(long byteSize) {
        if (byteSize < 0 || byteSize > SizeClasses.LARGEST) {
            return allocateOffset(byteSize, SizeClasses.GRAIN);
        }
        checkAlive();
        long offset = blocks.take(SizeClasses.of((int) byteSize));
        return offset < 0 ? allocateLarge(byteSize, SizeClasses.GRAIN) : offset;
    }

    private long allocateOffset(long byteSize, long byteAlignment) {
        if (byteSize < 0) {
            throw new IllegalArgumentException("a size cannot be negative: " + byteSize);
        }
        if (byteAlignment <= 0 || Long.bitCount(byteAlignment) != 1) {
            throw new IllegalArgumentException("an alignment is a power of two, not " + byteAlignment);
        }
        checkAlive();
        int sizeClass = byteSize <= SizeClasses.LARGEST && byteAlignment <= Units.UNIT
                ? SizeClasses.of((int) byteSize, (int) byteAlignment)
                : -1;
        long offset = sizeClass < 0 ? -1 : blocks.take(sizeClass);
        return offset < 0 ? allocateLarge(byteSize, byteAlignment) : offset;
    }

    /// Also serves small requests if no span of their size is available.
    private long allocateLarge(long byteSize, long byteAlignment) {
        long offset = blocks.takeLarge(Math.max(1, byteSize), byteAlignment);
        if (offset < 0) {
            throw exhausted(byteSize);
        }
        return offset;
    }

    private MemoryExhaustedException exhausted(long byteSize) {
        return new MemoryExhaustedException("cannot allocate " + Bytes.text(byteSize) + ": the longest free run in "
                + Bytes.text(memory.byteSize()) + " has " + Bytes.text(blocks.longestFree())
                + "; free blocks, or reserve more");
    }

    /// Returns the usable size of a block: at least the requested size.
    ///
    /// @param offset its offset in [#memory], in bytes
    /// @return its size in bytes
    /// @throws IllegalArgumentException if no block starts there, or it was freed
    public long sizeAt(long offset) {
        return blocks.sizeAt(offset);
    }

    /// {@return the highest offset ever in use, in bytes: memory beyond it was never allocated}
    public long reached() {
        return blocks.reached();
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

    /// {@return the held bytes: blocks in use, and free blocks of the same spans}
    public long held() {
        return blocks.held();
    }

    private void checkAlive() {
        if (!memory.scope().isAlive()) {
            throw new IllegalStateException("the memory's arena is closed");
        }
    }
}
