package io.hugewise.agrona;

import io.hugewise.memory.BlockAllocator;
import io.hugewise.memory.MemoryExhaustedException;
import java.lang.foreign.MemorySegment;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.AtomicBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/// Agrona's buffers in blocks or segments, such as those of a [io.hugewise.memory.HugeAllocator].
///
/// ```java
/// UnsafeBuffer buffer = HugeBuffers.allocate(allocator, 1024);
/// buffer.putLongVolatile(0, 42);
/// HugeBuffers.free(allocator, buffer);
/// ```
///
/// Agrona checks bounds, but neither whether the memory exists nor its thread: do not use a buffer after its block was
/// freed or its arena was closed. The JVM needs `--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED`, or
/// `=org.agrona` if Agrona is on the module path.
public final class HugeBuffers {
    private HugeBuffers() {}

    /// Allocates a buffer aligned to 8 bytes. It is not zeroed.
    ///
    /// @param memory the memory of its block
    /// @param capacity capacity in bytes
    /// @return the buffer; it must be freed
    /// @throws MemoryExhaustedException if there is not enough contiguous memory
    /// @throws IllegalArgumentException if the capacity is negative
    public static UnsafeBuffer allocate(BlockAllocator memory, int capacity) {
        return wrap(memory.allocate(capacity, AtomicBuffer.ALIGNMENT));
    }

    /// Frees the block of a buffer, whose capacity is 0 afterwards.
    ///
    /// @param memory the memory of its block
    /// @param buffer a buffer that was allocated there
    /// @throws IllegalArgumentException if no block starts there
    /// @throws IllegalStateException if it was freed already
    public static void free(BlockAllocator memory, MutableDirectBuffer buffer) {
        memory.free(MemorySegment.ofAddress(buffer.addressOffset()));
        buffer.wrap(0, 0);
    }

    /// Wraps a segment without copying it.
    ///
    /// @param segment memory that can be written
    /// @return a buffer of the same memory; its [UnsafeBuffer#byteBuffer()] can be used for I/O
    /// @throws IllegalArgumentException if the segment is read-only, or has 2 GiB or more
    public static UnsafeBuffer wrap(MemorySegment segment) {
        if (segment.isReadOnly() || segment.byteSize() > Integer.MAX_VALUE) {
            throw new IllegalArgumentException("less than 2 GiB that can be written are needed, not " + segment);
        }
        return new UnsafeBuffer(segment.asByteBuffer());
    }
}
