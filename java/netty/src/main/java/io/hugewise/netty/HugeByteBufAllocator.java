package io.hugewise.netty;

import io.hugewise.memory.BlockAllocator;
import io.hugewise.memory.MemoryExhaustedException;
import io.hugewise.memory.internal.Stack;
import io.netty.buffer.AbstractByteBufAllocator;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocatorMetric;
import io.netty.buffer.ByteBufAllocatorMetricProvider;
import io.netty.buffer.UnpooledHeapByteBuf;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.LongAdder;

/// A Netty allocator whose direct buffers are blocks, such as those of a [io.hugewise.memory.HugeAllocator].
///
/// ```java
/// var allocator = new HugeByteBufAllocator(HugeAllocator.of(arena));
/// bootstrap.option(ChannelOption.ALLOCATOR, allocator);
/// ```
///
/// [#buffer] and [#ioBuffer] return direct buffers, unless Netty cannot free its own on this JVM. A block is freed when
/// the last reference to its buffer is released. A buffer that grows moves to a larger block. Direct buffers are not
/// zeroed; heap buffers are Netty's own, without a pool.
///
/// If memory is full, the allocation or growth of a direct buffer throws an [OutOfMemoryError], whose cause is the
/// [MemoryExhaustedException]; a buffer that could not grow stays as it is.
///
/// The threads of Netty use the memory, so its arena must not be confined. Release all buffers before the arena is
/// closed: later use throws an exception, except in native transports, which do not check.
public final class HugeByteBufAllocator extends AbstractByteBufAllocator implements ByteBufAllocatorMetricProvider {
    private final BlockAllocator memory;
    private final Used used = new Used(new LongAdder(), new LongAdder());

    /// Creates an allocator.
    ///
    /// @param memory its blocks become the direct buffers
    public HugeByteBufAllocator(BlockAllocator memory) {
        super(true);
        this.memory = memory;
    }

    @Override
    protected ByteBuf newHeapBuffer(int initialCapacity, int maxCapacity) {
        return new HeapBuffer(initialCapacity, maxCapacity);
    }

    @Override
    protected ByteBuf newDirectBuffer(int initialCapacity, int maxCapacity) {
        Stack.claimMore();
        var buffer = new BlockBuffer(this, initialCapacity, maxCapacity);
        try {
            return toLeakAwareBuffer(buffer);
        } catch (Throwable error) {
            buffer.release();
            throw error;
        }
    }

    /// {@return true: a direct buffer costs no system call, so channels copy heap buffers to direct ones}
    @Override
    public boolean isDirectBufferPooled() {
        return true;
    }

    /// {@return the capacity in bytes of the heap buffers and of the direct buffers}
    @Override
    public ByteBufAllocatorMetric metric() {
        return used;
    }

    MemorySegment allocateBlock(int capacity) {
        // Before: it may need memory of the heap, for which the block would be lost.
        used.direct.add(capacity);
        boolean isAllocated = false;
        try {
            MemorySegment block = memory.allocate(capacity);
            isAllocated = true;
            return block;
        } catch (MemoryExhaustedException full) {
            var error = new OutOfMemoryError(full.getMessage());
            error.initCause(full);
            throw error;
        } finally {
            if (!isAllocated) {
                used.direct.add(-capacity);
            }
        }
    }

    void freeBlock(MemorySegment block) {
        memory.free(block);
        used.direct.add(-block.byteSize());
    }

    private record Used(LongAdder heap, LongAdder direct) implements ByteBufAllocatorMetric {
        @Override
        public long usedHeapMemory() {
            return heap.sum();
        }

        @Override
        public long usedDirectMemory() {
            return direct.sum();
        }
    }

    private final class HeapBuffer extends UnpooledHeapByteBuf {
        HeapBuffer(int initialCapacity, int maxCapacity) {
            super(HugeByteBufAllocator.this, initialCapacity, maxCapacity);
        }

        @Override
        protected byte[] allocateArray(int initialCapacity) {
            used.heap.add(initialCapacity);
            return super.allocateArray(initialCapacity);
        }

        @Override
        protected void freeArray(byte[] array) {
            super.freeArray(array);
            used.heap.add(-array.length);
        }
    }
}
