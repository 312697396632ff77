package io.hugewise.memory;

import io.hugewise.memory.internal.Stack;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/// Allocates blocks of any size, freed one by one, in a memory segment such as that of a [HugeArena]. It
/// replaces `malloc` and `Unsafe.allocateMemory`.
///
/// ```java
/// HugeAllocator allocator = HugeAllocator.of(arena);
/// MemorySegment row = allocator.allocate(592);
/// allocator.free(row);
/// ```
///
/// Any thread may allocate, and free blocks of other threads, normally without a lock. Free blocks of idle threads are
/// within reach of others. Memory is not zeroed, except by [#allocateZeroed].
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
/// A double free and an offset without a block throw an exception, unless the block has been reused: then it
/// belongs to its new owner. If two threads free the same block of up to 30 KiB at the same moment, both may succeed; the
/// block is free once. Writes through [#memory] beyond the end of a block change another block, undetected.
///
/// # Costs
///
/// Metadata is not in the memory: 4 to 6 bytes per 4 KiB on the Java heap, in a few arrays, and 128 bytes per 4 KiB
/// outside, of which those are resident that belong to memory in blocks of up to 30 KiB.
public final class HugeAllocator implements BlockAllocator {

    private final MemorySegment memory;
    private final MemorySegment.Scope scope;
    private final Blocks blocks;
    private final SlotFastPath fastPath;

    private HugeAllocator(MemorySegment memory, Blocks blocks) {
        this.memory = memory;
        this.scope = memory.scope();
        this.blocks = blocks;
        this.fastPath = blocks.fastPath();
    }

    /// Creates an allocator in the remaining memory of an arena.
    ///
    /// @param arena the arena; it is full afterwards
    /// @return the allocator
    /// @throws IllegalArgumentException if there is too little memory
    public static HugeAllocator of(HugeArena arena) {
        MemorySegment whole = wholeUnits(arena.rest());
        return new HugeAllocator(whole, new Blocks(whole.address(), whole.byteSize(), arena.backing().pageSize(), true, null));
    }

    /// Creates an allocator in a segment without other users.
    ///
    /// @param memory a native segment of at least 64 KiB
    /// @return the allocator
    /// @throws IllegalArgumentException if it is on the heap, read-only, or too small
    public static HugeAllocator of(MemorySegment memory) {
        MemorySegment whole = wholeUnits(memory);
        return new HugeAllocator(whole, new Blocks(whole.address(), whole.byteSize(), Units.UNIT, false, null));
    }

    /// Creates an allocator in the remaining memory of an arena that returns pages without blocks to the kernel
    /// (decommit), once they have been free for a while. They are zeroed, and populated again when they are used.
    ///
    /// Threads that free blocks return pages: while none is freed, nothing is returned, except by [#trim].
    ///
    /// @param arena the arena on base or transparent huge pages; it is full afterwards
    /// @param after pages are returned after one to two times this duration
    /// @return the allocator
    /// @throws IllegalArgumentException if the arena's pages are of a pool, or there is too little memory
    public static HugeAllocator decommitting(HugeArena arena, Duration after) {
        return decommitting(arena, after.toNanos(), System::nanoTime);
    }

    static HugeAllocator decommitting(HugeArena arena, long after, LongSupplier clock) {
        Obtained obtained = arena.backing();
        Backing.Kind kind = obtained.backing().kind();
        if (kind != Backing.Kind.BASE && kind != Backing.Kind.THP) {
            throw new IllegalArgumentException("pages of a pool are not returned, because other programs could take them: "
                    + arena + " is on " + obtained.backing());
        }
        MemorySegment whole = wholeUnits(arena.rest());
        var decommit = new Decommit(whole, obtained.pageSize(), after, clock);
        return new HugeAllocator(whole, new Blocks(whole.address(), whole.byteSize(), obtained.pageSize(), true, decommit));
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
        return segment(allocateOffset(byteSize, byteAlignment), byteSize);
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
        return segment(allocateOffset(byteSize), byteSize);
    }

    /// The segment of a block that was allocated. The block is freed if the heap has no memory for the segment.
    private MemorySegment segment(long offset, long byteSize) {
        try {
            return memory.asSlice(offset, byteSize);
        } catch (Throwable error) {
            freeOffset(offset);
            throw error;
        }
    }

    /// Allocates a block aligned to 16 bytes and returns its offset in [#memory]. It is not zeroed.
    ///
    /// @param byteSize size in bytes; 0 is like 1
    /// @return the offset in bytes; it must be freed
    /// @throws MemoryExhaustedException if there is not enough contiguous memory
    /// @throws IllegalArgumentException if the size is negative
    /// @throws IllegalStateException if the memory's arena is closed
    public long allocateOffset(long byteSize) {
        long offset = tryAllocateOffset(byteSize);
        if (offset < 0) {
            throw exhausted(byteSize);
        }
        return offset;
    }

    /// Allocates a block and returns its offset in [#memory]. It is not zeroed.
    ///
    /// @param byteSize size in bytes; 0 is like 1
    /// @param byteAlignment alignment in bytes, a power of two
    /// @return the offset in bytes; it must be freed
    /// @throws MemoryExhaustedException if there is not enough contiguous memory
    /// @throws IllegalArgumentException if the size is negative, or the alignment is not a power of two
    /// @throws IllegalStateException if the memory's arena is closed
    public long allocateOffset(long byteSize, long byteAlignment) {
        Stack.claim();
        if (byteAlignment <= 0 || Long.bitCount(byteAlignment) != 1) {
            throw new IllegalArgumentException("an alignment is a power of two, not " + byteAlignment);
        }
        checkUsable(byteSize);
        int sizeClass = byteSize <= SizeClasses.LARGEST && byteAlignment <= Units.UNIT
                ? SizeClasses.of((int) byteSize, (int) byteAlignment)
                : -1;
        long offset = take(sizeClass, byteSize, byteAlignment);
        if (offset < 0) {
            throw exhausted(byteSize);
        }
        return offset;
    }

    /// Allocates a block aligned to 16 bytes; it is not zeroed. If memory is full, this takes some nanoseconds.
    ///
    /// @param byteSize size in bytes; 0 is like 1
    /// @return a segment of exactly this size, which must be freed; null if there is not enough contiguous memory
    /// @throws IllegalArgumentException if the size is negative
    /// @throws IllegalStateException if the memory's arena is closed
    @Override
    public @Nullable MemorySegment tryAllocate(long byteSize) {
        long offset = tryAllocateOffset(byteSize);
        return offset < 0 ? null : segment(offset, byteSize);
    }

    /// Allocates a block aligned to 16 bytes; it is not zeroed. If memory is full, this takes some nanoseconds.
    ///
    /// @param byteSize size in bytes; 0 is like 1
    /// @return the block's offset in [#memory], in bytes, which must be freed; -1 if there is not enough contiguous
    ///     memory
    /// @throws IllegalArgumentException if the size is negative
    /// @throws IllegalStateException if the memory's arena is closed
    public long tryAllocateOffset(long byteSize) {
        Stack.claim();
        checkAlive();
        if (byteSize >= 0 && byteSize <= SizeClasses.LARGEST) {
            long offset = fastPath.take(SizeClasses.of((int) byteSize));
            if (offset >= 0) {
                return offset;
            }
        }
        return takeAny(byteSize);
    }

    private long takeAny(long byteSize) {
        checkUsable(byteSize);
        return take(byteSize <= SizeClasses.LARGEST ? SizeClasses.of((int) byteSize) : -1, byteSize, SizeClasses.GRAIN);
    }

    /// Units also serve small requests if no span of their size is available.
    private long take(int sizeClass, long byteSize, long byteAlignment) {
        long offset = sizeClass < 0 ? -1 : blocks.take(sizeClass);
        return offset < 0 ? blocks.takeLarge(Math.max(1, byteSize), byteAlignment, null) : offset;
    }

    /// Allocates a zeroed block aligned to 16 bytes. Blocks above 64 KiB are zeroed only where memory was used before.
    ///
    /// @param byteSize size in bytes; 0 is like 1
    /// @return a segment of exactly this size; it must be freed
    /// @throws MemoryExhaustedException if there is not enough contiguous memory
    /// @throws IllegalArgumentException if the size is negative
    /// @throws IllegalStateException if the memory's arena is closed
    public MemorySegment allocateZeroed(long byteSize) {
        return segment(allocateZeroedOffset(byteSize), byteSize);
    }

    /// Allocates a block as [#allocateZeroed] does, and returns its offset in [#memory].
    ///
    /// @param byteSize size in bytes; 0 is like 1
    /// @return the offset in bytes; it must be freed
    /// @throws MemoryExhaustedException if there is not enough contiguous memory
    /// @throws IllegalArgumentException if the size is negative
    /// @throws IllegalStateException if the memory's arena is closed
    public long allocateZeroedOffset(long byteSize) {
        if (byteSize <= SizeClasses.LARGEST) {
            long offset = allocateOffset(byteSize);
            memory.asSlice(offset, byteSize).fill((byte) 0);
            return offset;
        }
        Stack.claim();
        checkUsable(byteSize);
        long offset = blocks.takeLarge(byteSize, SizeClasses.GRAIN, memory);
        if (offset < 0) {
            throw exhausted(byteSize);
        }
        return offset;
    }

    /// Changes the size of a block; moves it if it does not fit where it is. If there is not enough memory, the block
    /// stays as it is.
    ///
    /// @param block a segment that was allocated here, or another segment with the same start
    /// @param byteSize new size in bytes; 0 is like 1
    /// @return a segment of exactly this size, with the contents of the block as far as it fits; it must be freed
    /// @throws MemoryExhaustedException if there is not enough contiguous memory
    /// @throws IllegalArgumentException if no block starts there, or the size is negative
    /// @throws IllegalStateException if the memory's arena is closed
    public MemorySegment reallocate(MemorySegment block, long byteSize) {
        long offset = block.address() - memory.address();
        if (stays(offset, byteSize)) {
            return memory.asSlice(offset, byteSize);
        }
        // Nothing is allocated if the block could not be freed.
        Stack.claimMore();
        MemorySegment moved = allocate(byteSize);
        move(offset, moved.address() - memory.address(), byteSize);
        return moved;
    }

    /// Changes the size of a block as [#reallocate] does.
    ///
    /// @param offset its offset in [#memory], in bytes
    /// @param byteSize new size in bytes; 0 is like 1
    /// @return the offset of the block with this size; it must be freed
    /// @throws MemoryExhaustedException if there is not enough contiguous memory
    /// @throws IllegalArgumentException if no block starts there, or the size is negative
    /// @throws IllegalStateException if the memory's arena is closed
    public long reallocateOffset(long offset, long byteSize) {
        if (stays(offset, byteSize)) {
            return offset;
        }
        Stack.claimMore();
        long moved = allocateOffset(byteSize);
        move(offset, moved, byteSize);
        return moved;
    }

    /// Whether a block has the memory for a size, and is at most half empty then.
    private boolean stays(long offset, long byteSize) {
        checkUsable(byteSize);
        long size = blocks.sizeAt(offset);
        return byteSize <= size && byteSize > size / 2;
    }

    private void move(long from, long to, long byteSize) {
        MemorySegment.copy(memory, from, memory, to, Math.min(blocks.sizeAt(from), byteSize));
        freeOffset(from);
    }

    private MemoryExhaustedException exhausted(long byteSize) {
        long available = blocks.longestFree();
        String message = "cannot allocate " + Bytes.text(byteSize) + ": the longest free run in "
                + Bytes.text(memory.byteSize()) + " has " + Bytes.text(available)
                + "; free blocks, or reserve more";
        return new MemoryExhaustedException(message, byteSize, available);
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
    @Override
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
        if (!fastPath.give(offset)) {
            blocks.give(offset);
        }
        blocks.afterFree();
    }

    /// {@return the memory that offsets refer to}
    public MemorySegment memory() {
        return memory;
    }

    /// {@return the held bytes: blocks in use, and free blocks of the same spans}
    public long held() {
        return blocks.held();
    }

    /// Returns the bytes of blocks in use, rounded up to the sizes of blocks. It takes no lock: while other threads
    /// allocate and free, it is the value of a moment.
    @Override
    public long live() {
        return blocks.live();
    }

    /// {@return the bytes of pages that may be resident: those that had blocks and were not returned to the kernel
    /// since}
    public long touched() {
        return blocks.touched();
    }

    /// Collects free memory that is kept for the next requests. An allocator that is [#decommitting] returns all pages
    /// without blocks to the kernel.
    ///
    /// @throws IllegalStateException if the memory's arena is closed
    public void trim() {
        Stack.claim();
        checkAlive();
        blocks.trim();
    }

    private void checkUsable(long byteSize) {
        checkAlive();
        if (byteSize < 0) {
            throw new IllegalArgumentException("a size cannot be negative: " + byteSize);
        }
    }

    private void checkAlive() {
        if (!scope.isAlive()) {
            throw new IllegalStateException("the memory's arena is closed");
        }
    }
}
