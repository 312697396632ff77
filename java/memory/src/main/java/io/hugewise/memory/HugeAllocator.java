package io.hugewise.memory;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;
import java.util.Arrays;

/// Memory for objects of any size that are freed one by one, in a piece of memory such as that of a
/// [HugeArena]: it stands in for `malloc` and for `Unsafe.allocateMemory`.
///
/// ```java
/// HugeAllocator allocator = HugeAllocator.of(arena);
/// MemorySegment row = allocator.allocate(592);
/// allocator.free(row);
/// ```
///
/// Any thread may allocate, and free what another has allocated. A thread keeps some free blocks for
/// itself, so that neither takes a lock as a rule; those of a thread that has ended are used by others.
/// Memory is not zeroed. Blocks are of 80 sizes up to 64 KiB, of which a request wastes less than an
/// eighth (up to 15 bytes below 128), and of whole 4 KiB above. Each is aligned to 16 bytes.
///
/// # By segment or by offset
///
/// [#allocate(long)] gives a segment. Where an object for each block is too much, [#allocateOffset]
/// gives the block's offset in [#memory]: a plain number to keep in a table. Both are checked when they
/// are used: beyond the memory, and after the arena was closed, there is an exception, and no crash.
///
/// ```java
/// static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;
/// MemorySegment entry = allocator.memory().asSlice(offset, 64); // bounds are checked here, once
/// long key = entry.get(LONG, 0);
/// long next = entry.get(LONG, 8);
/// ```
///
/// A block that is freed twice, and an offset at which no block begins, are exceptions where that can be
/// told: not where another thread frees the same block at the same moment, nor where the block has
/// meanwhile been handed out again. What is written beyond the end of a block by way of [#memory] is
/// in another block, and is not seen.
///
/// # Costs
///
/// The heap holds 4 bytes for each 4 KiB of the memory (8 in a heap of 32 GiB or more), and for what is in
/// use an object for each span and a byte and a bit for each block: for 4 KiB some 170 bytes with blocks of
/// 64 bytes, 120 with 1 KiB, 60 with 4 KiB, 8 with 64 KiB. Nothing of it is in the memory itself.
public final class HugeAllocator extends BlockMemory implements SegmentAllocator {

    private HugeAllocator(Blocks blocks) {
        super(blocks);
    }

    /// An allocator in all that an arena has left.
    ///
    /// @param arena the arena; it has nothing left then
    /// @return the allocator
    /// @throws IllegalArgumentException if there is too little memory
    public static HugeAllocator of(HugeArena arena) {
        return of(arena.rest());
    }

    /// An allocator in a segment that nobody else uses.
    ///
    /// @param memory the segment: native, and of at least 64 KiB
    /// @return the allocator
    /// @throws IllegalArgumentException if it is on the heap, read-only, or there is too little memory
    public static HugeAllocator of(MemorySegment memory) {
        int[] sizes = SizeClasses.sizes();
        long[] wide = new long[sizes.length];
        Arrays.setAll(wide, i -> sizes[i]);
        return new HugeAllocator(new Blocks(wholeUnits(memory), wide));
    }

    /// The part of a segment that is whole units.
    static MemorySegment wholeUnits(MemorySegment memory) {
        if (!memory.isNative() || memory.isReadOnly()) {
            throw new IllegalArgumentException("native memory that can be written is needed, not " + memory);
        }
        long skipped = -memory.address() & Spans.UNIT - 1;
        long size = memory.byteSize() - skipped & -Spans.UNIT;
        if (size < SizeClasses.LARGEST) {
            throw new IllegalArgumentException(Bytes.text(memory.byteSize()) + " are too little for an allocator");
        }
        return memory.asSlice(skipped, size);
    }

    /// Allocates a block. It holds what was there before.
    ///
    /// @param byteSize how many bytes; 0 is as good as 1
    /// @param byteAlignment what the address is a multiple of: a power of two
    /// @return a segment of just this size; it must be freed
    /// @throws MemoryExhaustedException if there is no room for it
    /// @throws IllegalArgumentException if the size is negative, or the alignment no power of two
    /// @throws IllegalStateException if the memory's arena is closed
    @Override
    public MemorySegment allocate(long byteSize, long byteAlignment) {
        return memory.asSlice(allocateOffset(byteSize, byteAlignment), byteSize);
    }

    /// The same, aligned to 16 bytes.
    ///
    /// @param byteSize how many bytes; 0 is as good as 1
    /// @return a segment of just this size; it must be freed
    /// @throws MemoryExhaustedException if there is no room for it
    /// @throws IllegalArgumentException if the size is negative
    /// @throws IllegalStateException if the memory's arena is closed
    @Override
    public MemorySegment allocate(long byteSize) {
        return memory.asSlice(allocateOffset(byteSize), byteSize);
    }

    /// The same, known by its offset in [#memory].
    ///
    /// @param byteSize how many bytes; 0 is as good as 1
    /// @return the offset; it must be freed
    /// @throws MemoryExhaustedException if there is no room for it
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
            throw new IllegalArgumentException("a size is not negative: " + byteSize);
        }
        if (byteAlignment <= 0 || Long.bitCount(byteAlignment) != 1) {
            throw new IllegalArgumentException("an alignment is a power of two, not " + byteAlignment);
        }
        checkAlive();
        int sizeClass = byteSize <= SizeClasses.LARGEST && byteAlignment <= Spans.UNIT
                ? SizeClasses.of((int) byteSize, (int) byteAlignment)
                : -1;
        long offset = sizeClass < 0 ? -1 : blocks.take(sizeClass);
        return offset < 0 ? allocateLarge(byteSize, byteAlignment) : offset;
    }

    /// Also for what is small, where no span of its size can be had any more.
    private long allocateLarge(long byteSize, long byteAlignment) {
        long offset = blocks.takeLarge(Math.max(1, byteSize), byteAlignment);
        if (offset < 0) {
            throw exhausted(byteSize);
        }
        return offset;
    }

    private MemoryExhaustedException exhausted(long byteSize) {
        return new MemoryExhaustedException(Bytes.text(byteSize) + " are wanted, and of " + Bytes.text(memory.byteSize())
                + " the longest free run has " + Bytes.text(blocks.longestFree()) + ": free some, or reserve more");
    }

    /// How much can be used of a block: what was asked for, or a little more.
    ///
    /// @param offset its offset
    /// @return its size, in bytes
    /// @throws IllegalArgumentException if no block begins there, or it was freed
    public long sizeAt(long offset) {
        return blocks.sizeAt(offset);
    }

    /// {@return up to which offset memory was ever used: what lies beyond was never touched}
    public long reached() {
        return blocks.reached();
    }
}
