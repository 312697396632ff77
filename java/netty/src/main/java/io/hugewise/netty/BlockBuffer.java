package io.hugewise.netty;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.nio.ByteOrder.BIG_ENDIAN;
import static java.nio.ByteOrder.LITTLE_ENDIAN;

import io.hugewise.memory.internal.Stack;
import io.netty.buffer.AbstractReferenceCountedByteBuf;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.channels.GatheringByteChannel;
import java.nio.channels.ScatteringByteChannel;
import org.jspecify.annotations.Nullable;

/// A direct buffer on a block.
///
/// Netty's own classes of direct buffers cannot move to another block: the methods that allocate their memory are
/// internal, and differ between versions.
final class BlockBuffer extends AbstractReferenceCountedByteBuf {
    private static final ValueLayout.OfShort SHORT = ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(BIG_ENDIAN);
    private static final ValueLayout.OfShort SHORT_LE = ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(LITTLE_ENDIAN);
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED.withOrder(BIG_ENDIAN);
    private static final ValueLayout.OfInt INT_LE = ValueLayout.JAVA_INT_UNALIGNED.withOrder(LITTLE_ENDIAN);
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED.withOrder(BIG_ENDIAN);
    private static final ValueLayout.OfLong LONG_LE = ValueLayout.JAVA_LONG_UNALIGNED.withOrder(LITTLE_ENDIAN);
    /// Most bytes that are copied at once for a stream.
    private static final int STREAM_BYTES = 8192;

    private final HugeByteBufAllocator allocator;
    private MemorySegment block;
    private int capacity;
    private @Nullable ByteBuffer internal;

    BlockBuffer(HugeByteBufAllocator allocator, int initialCapacity, int maxCapacity) {
        super(maxCapacity);
        this.allocator = allocator;
        this.block = allocator.allocateBlock(initialCapacity);
        this.capacity = initialCapacity;
    }

    /// The stack is claimed before the count of references changes: the last one frees the block.
    @Override
    public boolean release() {
        Stack.claimMore();
        return super.release();
    }

    @Override
    public boolean release(int decrement) {
        Stack.claimMore();
        return super.release(decrement);
    }

    @Override
    protected void deallocate() {
        replaceBlock(MemorySegment.NULL);
    }

    private void replaceBlock(MemorySegment by) {
        MemorySegment old = block;
        block = by;
        internal = null;
        allocator.freeBlock(old);
    }

    // Properties

    @Override
    public ByteBufAllocator alloc() {
        return allocator;
    }

    @Override
    public int capacity() {
        return capacity;
    }

    @Override
    public ByteBuf capacity(int newCapacity) {
        checkNewCapacity(newCapacity);
        if (newCapacity != capacity) {
            Stack.claimMore();
            MemorySegment moved = allocator.allocateBlock(newCapacity);
            MemorySegment.copy(block, 0, moved, 0, Math.min(newCapacity, capacity));
            trimIndicesToCapacity(newCapacity);
            replaceBlock(moved);
            capacity = newCapacity;
        }
        return this;
    }

    @Override
    @SuppressWarnings("deprecation")
    public ByteOrder order() {
        return BIG_ENDIAN;
    }

    @Override
    public @Nullable ByteBuf unwrap() {
        return null;
    }

    @Override
    public boolean isDirect() {
        return true;
    }

    @Override
    public boolean isContiguous() {
        return true;
    }

    @Override
    public boolean hasArray() {
        return false;
    }

    @Override
    public byte[] array() {
        throw new UnsupportedOperationException("a direct buffer has no array");
    }

    @Override
    public int arrayOffset() {
        throw new UnsupportedOperationException("a direct buffer has no array");
    }

    /// {@return false: Netty would use the address without checking whether the arena is open}
    @Override
    public boolean hasMemoryAddress() {
        return false;
    }

    @Override
    public long memoryAddress() {
        throw new UnsupportedOperationException("the address of this buffer is not available");
    }

    // Values; the callers have checked the index

    @Override
    protected byte _getByte(int index) {
        return block.get(JAVA_BYTE, index);
    }

    @Override
    protected short _getShort(int index) {
        return block.get(SHORT, index);
    }

    @Override
    protected short _getShortLE(int index) {
        return block.get(SHORT_LE, index);
    }

    @Override
    protected int _getUnsignedMedium(int index) {
        return (_getByte(index) & 0xFF) << 16 | (_getShort(index + 1) & 0xFFFF);
    }

    @Override
    protected int _getUnsignedMediumLE(int index) {
        return (_getShortLE(index) & 0xFFFF) | (_getByte(index + 2) & 0xFF) << 16;
    }

    @Override
    protected int _getInt(int index) {
        return block.get(INT, index);
    }

    @Override
    protected int _getIntLE(int index) {
        return block.get(INT_LE, index);
    }

    @Override
    protected long _getLong(int index) {
        return block.get(LONG, index);
    }

    @Override
    protected long _getLongLE(int index) {
        return block.get(LONG_LE, index);
    }

    @Override
    protected void _setByte(int index, int value) {
        block.set(JAVA_BYTE, index, (byte) value);
    }

    @Override
    protected void _setShort(int index, int value) {
        block.set(SHORT, index, (short) value);
    }

    @Override
    protected void _setShortLE(int index, int value) {
        block.set(SHORT_LE, index, (short) value);
    }

    @Override
    protected void _setMedium(int index, int value) {
        _setByte(index, value >>> 16);
        _setShort(index + 1, value);
    }

    @Override
    protected void _setMediumLE(int index, int value) {
        _setShortLE(index, value);
        _setByte(index + 2, value >>> 16);
    }

    @Override
    protected void _setInt(int index, int value) {
        block.set(INT, index, value);
    }

    @Override
    protected void _setIntLE(int index, int value) {
        block.set(INT_LE, index, value);
    }

    @Override
    protected void _setLong(int index, long value) {
        block.set(LONG, index, value);
    }

    @Override
    protected void _setLongLE(int index, long value) {
        block.set(LONG_LE, index, value);
    }

    // Ranges

    @Override
    public ByteBuf getBytes(int index, ByteBuf destination, int destinationIndex, int length) {
        checkDstIndex(index, length, destinationIndex, destination.capacity());
        destination.setBytes(destinationIndex, nioBuffer(index, length));
        return this;
    }

    @Override
    public ByteBuf getBytes(int index, byte[] destination, int destinationIndex, int length) {
        checkDstIndex(index, length, destinationIndex, destination.length);
        MemorySegment.copy(block, JAVA_BYTE, index, destination, destinationIndex, length);
        return this;
    }

    @Override
    public ByteBuf getBytes(int index, ByteBuffer destination) {
        destination.put(nioBuffer(index, destination.remaining()));
        return this;
    }

    @Override
    public ByteBuf getBytes(int index, OutputStream out, int length) throws IOException {
        checkIndex(index, length);
        byte[] bytes = new byte[Math.min(length, STREAM_BYTES)];
        for (int done = 0; done < length; done += bytes.length) {
            int part = Math.min(length - done, bytes.length);
            getBytes(index + done, bytes, 0, part);
            out.write(bytes, 0, part);
        }
        return this;
    }

    @Override
    public int getBytes(int index, GatheringByteChannel out, int length) throws IOException {
        return out.write(nioBuffer(index, length));
    }

    @Override
    public int getBytes(int index, FileChannel out, long position, int length) throws IOException {
        return out.write(nioBuffer(index, length), position);
    }

    @Override
    public ByteBuf setBytes(int index, ByteBuf source, int sourceIndex, int length) {
        checkSrcIndex(index, length, sourceIndex, source.capacity());
        source.getBytes(sourceIndex, nioBuffer(index, length));
        return this;
    }

    @Override
    public ByteBuf setBytes(int index, byte[] source, int sourceIndex, int length) {
        checkSrcIndex(index, length, sourceIndex, source.length);
        MemorySegment.copy(source, sourceIndex, block, JAVA_BYTE, index, length);
        return this;
    }

    @Override
    public ByteBuf setBytes(int index, ByteBuffer source) {
        nioBuffer(index, source.remaining()).put(source);
        return this;
    }

    @Override
    public int setBytes(int index, InputStream in, int length) throws IOException {
        checkIndex(index, length);
        byte[] bytes = new byte[length];
        int read = in.read(bytes);
        if (read > 0) {
            setBytes(index, bytes, 0, read);
        }
        return read;
    }

    @Override
    public int setBytes(int index, ScatteringByteChannel in, int length) throws IOException {
        try {
            return in.read(internalNioBuffer(index, length));
        } catch (ClosedChannelException _) {
            return -1;
        }
    }

    @Override
    public int setBytes(int index, FileChannel in, long position, int length) throws IOException {
        try {
            return in.read(internalNioBuffer(index, length), position);
        } catch (ClosedChannelException _) {
            return -1;
        }
    }

    @Override
    public ByteBuf copy(int index, int length) {
        checkIndex(index, length);
        return allocator.directBuffer(length, maxCapacity()).writeBytes(this, index, length);
    }

    // Views

    @Override
    public int nioBufferCount() {
        return 1;
    }

    @Override
    public ByteBuffer nioBuffer(int index, int length) {
        checkIndex(index, length);
        return block.asSlice(index, length).asByteBuffer();
    }

    @Override
    public ByteBuffer[] nioBuffers(int index, int length) {
        return new ByteBuffer[] {nioBuffer(index, length)};
    }

    /// The view that I/O uses, one for all calls.
    @Override
    public ByteBuffer internalNioBuffer(int index, int length) {
        checkIndex(index, length);
        ByteBuffer view = internal;
        if (view == null) {
            view = block.asByteBuffer();
            internal = view;
        }
        return view.clear().position(index).limit(index + length);
    }
}
