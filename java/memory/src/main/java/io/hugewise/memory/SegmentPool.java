package io.hugewise.memory;

import io.hugewise.memory.internal.Stack;
import java.lang.foreign.MemorySegment;

/// Equal segments of 64 KiB or more in the memory of a [HugeArena], numbered from 0: what a log-structured cache or
/// store is built on.
///
/// ```java
/// SegmentPool pool = SegmentPool.of(arena, 2 << 20, 3);
/// int segment = pool.tryAcquire();
/// MemorySegment log = pool.segment(segment);
/// pool.setField(segment, CREATED, now);
/// ```
///
/// A segment is aligned to the largest power of two that divides its size, so a segment of a huge page's size is one
/// huge page where memory is on such pages. Each segment has a fixed number of fields of 64 bits, outside of it, for
/// its user's data, such as its age or the bytes that are in use. Metadata is in a few arrays on the Java heap: 8 bytes
/// for each field, and some bits.
///
/// Any thread may acquire and release segments. The one that was released keeps its contents and its fields until it
/// is acquired and changed again; the free segment with the lowest number is acquired first.
public final class SegmentPool {
    private static final long SMALLEST = 64 << 10;

    private final MemorySegment memory;
    private final long segmentSize;
    private final EqualBlocks segments;
    private final int fieldCount;
    private final long[] fields;

    private SegmentPool(MemorySegment memory, long segmentSize, int fieldCount) {
        this.memory = memory;
        this.segmentSize = segmentSize;
        int count = Math.toIntExact(memory.byteSize() / segmentSize);
        this.segments = new EqualBlocks(count, 1, 1);
        this.fieldCount = fieldCount;
        this.fields = new long[Math.multiplyExact(count, fieldCount)];
    }

    /// Creates a pool in the remaining memory of an arena.
    ///
    /// @param arena the arena; it is full afterwards
    /// @param segmentSize size of each segment in bytes, a multiple of 64 KiB
    /// @param fields number of fields of each segment
    /// @return the pool
    /// @throws IllegalArgumentException if the size is not such a multiple, the number of fields is negative, or the
    ///     memory has no room for a segment
    public static SegmentPool of(HugeArena arena, long segmentSize, int fields) {
        check(segmentSize, fields);
        MemorySegment rest = arena.rest();
        return of(rest, -rest.address() & Long.lowestOneBit(segmentSize) - 1, segmentSize, fields);
    }

    /// Creates a pool in any memory, of which the first segment is the start: segments are aligned as the memory is.
    /// So in the memory of a [HugeFile], each segment has the same number in the next process.
    ///
    /// @param memory the memory
    /// @param segmentSize size of each segment in bytes, a multiple of 64 KiB
    /// @param fields number of fields of each segment
    /// @return the pool, of which no segment is acquired
    /// @throws IllegalArgumentException if the size is not such a multiple, the number of fields is negative, or the
    ///     memory has no room for a segment
    public static SegmentPool of(MemorySegment memory, long segmentSize, int fields) {
        check(segmentSize, fields);
        return of(memory, 0, segmentSize, fields);
    }

    private static void check(long segmentSize, int fields) {
        if (segmentSize <= 0 || segmentSize % SMALLEST != 0) {
            throw new IllegalArgumentException("the size of segments is a multiple of 64KiB, not " + segmentSize);
        }
        if (fields < 0) {
            throw new IllegalArgumentException("the number of fields cannot be negative: " + fields);
        }
    }

    private static SegmentPool of(MemorySegment memory, long skipped, long segmentSize, int fields) {
        long size = (memory.byteSize() - skipped) / segmentSize * segmentSize;
        if (size <= 0) {
            throw new IllegalArgumentException(
                    Bytes.text(memory.byteSize()) + " have no room for a segment of " + Bytes.text(segmentSize));
        }
        return new SegmentPool(memory.asSlice(skipped, size), segmentSize, fields);
    }

    /// Acquires a segment. Its contents and fields are those that it had when it was released, 0 at first.
    ///
    /// @return its number; it must be released
    /// @throws MemoryExhaustedException if no segment is free
    /// @throws IllegalStateException if the memory's arena is closed
    public int acquire() {
        int segment = tryAcquire();
        if (segment < 0) {
            throw new MemoryExhaustedException(
                    "all " + segments.count() + " segments of " + Bytes.text(segmentSize)
                            + " are in use: release some, or reserve more memory",
                    segmentSize,
                    0);
        }
        return segment;
    }

    /// Acquires a segment as [#acquire] does.
    ///
    /// @return its number, which must be released; -1 if no segment is free
    /// @throws IllegalStateException if the memory's arena is closed
    public int tryAcquire() {
        Stack.claimLittle();
        if (!memory.scope().isAlive()) {
            throw new IllegalStateException("the memory's arena is closed");
        }
        return segments.take();
    }

    /// Releases a segment.
    ///
    /// @param segment its number
    /// @throws IllegalStateException if it is free already
    /// @throws IndexOutOfBoundsException if there is no such segment
    public void release(int segment) {
        Stack.claimLittle();
        if (!segments.give(checked(segment))) {
            throw new IllegalStateException("segment " + segment + " was released already");
        }
    }

    /// Returns the memory of a segment.
    ///
    /// @param segment its number
    /// @return the memory
    /// @throws IndexOutOfBoundsException if there is no such segment
    public MemorySegment segment(int segment) {
        return memory.asSlice(offset(segment), segmentSize);
    }

    /// Returns where a segment is.
    ///
    /// @param segment its number
    /// @return its offset in [#memory], in bytes
    /// @throws IndexOutOfBoundsException if there is no such segment
    public long offset(int segment) {
        return checked(segment) * segmentSize;
    }

    /// {@return the memory that offsets refer to}
    public MemorySegment memory() {
        return memory;
    }

    /// {@return the size of each segment in bytes}
    public long segmentSize() {
        return segmentSize;
    }

    /// {@return the number of segments}
    public int count() {
        return segments.count();
    }

    /// {@return the number of free segments; while other threads acquire and release, that of a moment}
    public int free() {
        return segments.count() - segments.taken();
    }

    /// Reads a field of a segment, with the effects of [java.lang.invoke.VarHandle#getAcquire].
    ///
    /// @param segment number of the segment
    /// @param field number of the field, from 0
    /// @return its value
    /// @throws IndexOutOfBoundsException if there is no such segment or field
    public long field(int segment, int field) {
        return Atomics.get(fields, index(segment, field));
    }

    /// Writes a field of a segment, with the effects of [java.lang.invoke.VarHandle#setVolatile].
    ///
    /// @param segment number of the segment
    /// @param field number of the field, from 0
    /// @param value its new value
    /// @throws IndexOutOfBoundsException if there is no such segment or field
    public void setField(int segment, int field, long value) {
        Atomics.put(fields, index(segment, field), value);
    }

    /// Replaces the value of a field if it is the expected one, atomically.
    ///
    /// @param segment number of the segment
    /// @param field number of the field, from 0
    /// @param expected the value to be replaced
    /// @param value its new value
    /// @return whether it was replaced
    /// @throws IndexOutOfBoundsException if there is no such segment or field
    public boolean compareAndSetField(int segment, int field, long expected, long value) {
        return Atomics.compareAndSet(fields, index(segment, field), expected, value);
    }

    /// Adds to a field of a segment, atomically.
    ///
    /// @param segment number of the segment
    /// @param field number of the field, from 0
    /// @param delta what is added
    /// @return the new value
    /// @throws IndexOutOfBoundsException if there is no such segment or field
    public long addToField(int segment, int field, long delta) {
        return Atomics.add(fields, index(segment, field), delta);
    }

    private int checked(int segment) {
        if (segment < 0 || segment >= segments.count()) {
            throw new IndexOutOfBoundsException("there are " + segments.count() + " segments, and no number " + segment);
        }
        return segment;
    }

    private int index(int segment, int field) {
        if (field < 0 || field >= fieldCount) {
            throw new IndexOutOfBoundsException("a segment has " + fieldCount + " fields, and no number " + field);
        }
        return checked(segment) * fieldCount + field;
    }
}
