package io.hugewise.netty;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/// Compares each operation with Netty's own buffers.
class BlockBufferTest {
    private static final int CAPACITY = 20_000;

    private final HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(8 << 20).only(Backing.base()));
    private final HugeAllocator memory = HugeAllocator.of(arena);
    private final HugeByteBufAllocator allocator = new HugeByteBufAllocator(memory);
    private final List<Operation> operations = new ArrayList<>();

    /// An operation on `length` bytes at `index`, with operands from `random`; returns what is compared.
    private interface Operation {
        Object on(ByteBuf buffer, int index, int length, Random random) throws Exception;
    }

    private interface ChannelOperation {
        Object on(ByteBuf buffer, int index, int length, FileChannel channel) throws Exception;
    }

    @AfterEach
    void allBlocksAreFree() {
        assertThat(memory.live()).isZero();
        arena.close();
    }

    private static byte[] bytes(int length, Random random) {
        byte[] bytes = new byte[length];
        random.nextBytes(bytes);
        return bytes;
    }

    private static Object contents(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return Arrays.hashCode(bytes);
    }

    @BeforeEach
    void values() {
        operations.addAll(List.of(
                (b, i, _, _) -> b.getByte(i),
                (b, i, _, _) -> b.getShort(i),
                (b, i, _, _) -> b.getShortLE(i),
                (b, i, _, _) -> b.getMedium(i),
                (b, i, _, _) -> b.getUnsignedMediumLE(i),
                (b, i, _, _) -> b.getInt(i),
                (b, i, _, _) -> b.getIntLE(i),
                (b, i, _, _) -> b.getLong(i),
                (b, i, _, _) -> b.getLongLE(i),
                (b, i, _, r) -> b.setByte(i, r.nextInt()).writerIndex(),
                (b, i, _, r) -> b.setShort(i, r.nextInt()).writerIndex(),
                (b, i, _, r) -> b.setShortLE(i, r.nextInt()).writerIndex(),
                (b, i, _, r) -> b.setMedium(i, r.nextInt()).writerIndex(),
                (b, i, _, r) -> b.setMediumLE(i, r.nextInt()).writerIndex(),
                (b, i, _, r) -> b.setInt(i, r.nextInt()).writerIndex(),
                (b, i, _, r) -> b.setIntLE(i, r.nextInt()).writerIndex(),
                (b, i, _, r) -> b.setLong(i, r.nextLong()).writerIndex(),
                (b, i, _, r) -> b.setLongLE(i, r.nextLong()).writerIndex()));
    }

    @BeforeEach
    void ranges() {
        operations.addAll(List.of(
                (b, i, n, _) -> {
                    byte[] read = new byte[n + 2];
                    b.getBytes(i, read, 1, n);
                    return Arrays.hashCode(read);
                },
                (b, i, n, _) -> {
                    ByteBuf read = Unpooled.wrappedBuffer(new byte[n + 2]);
                    b.getBytes(i, read, 1, n);
                    return read;
                },
                (b, i, n, _) -> {
                    ByteBuffer read = ByteBuffer.allocateDirect(n);
                    b.getBytes(i, read);
                    return List.of(read.remaining(), contents(read.flip()));
                },
                (b, i, n, _) -> {
                    var read = new ByteArrayOutputStream();
                    b.getBytes(i, read, n);
                    return Arrays.hashCode(read.toByteArray());
                },
                (b, i, n, r) -> b.setBytes(i, bytes(n + 2, r), 1, n).writerIndex(),
                (b, i, n, r) -> b.setBytes(i, Unpooled.wrappedBuffer(bytes(n + 2, r)), 1, n).writerIndex(),
                (b, i, n, r) -> b.setBytes(i, ByteBuffer.wrap(bytes(n, r))).writerIndex(),
                (b, i, n, r) -> b.setBytes(i, new ByteArrayInputStream(bytes(n, r)), n + 1),
                (b, i, n, _) -> b.setBytes(i, new ByteArrayInputStream(new byte[0]), n + 1),
                // Onto itself.
                (b, i, n, r) -> b.setBytes(i, b, r.nextInt(b.capacity() - n), n).writerIndex(),
                (b, i, n, _) -> b.setZero(i, n).writerIndex(),
                (b, i, n, _) -> b.toString(i, n, StandardCharsets.ISO_8859_1).hashCode(),
                (b, i, n, r) -> b.indexOf(i, i + n, (byte) r.nextInt())));
    }

    @BeforeEach
    void views() {
        operations.addAll(List.of(
                (b, i, n, _) -> contents(b.nioBuffer(i, n)),
                (b, i, n, _) -> contents(b.internalNioBuffer(i, n)),
                (b, i, n, _) -> contents(b.nioBuffers(i, n)[0]),
                (b, i, n, _) -> b.nioBuffer(i, n).put(0, (byte) 7).capacity(),
                (b, i, n, r) -> b.slice(i, n).setLong(0, r.nextLong()).capacity(),
                (b, i, n, _) -> {
                    ByteBuf copy = b.copy(i, n);
                    int hash = copy.hashCode();
                    copy.setByte(0, 7).release();
                    return hash;
                },
                (b, i, n, _) -> b.readerIndex(i).writerIndex(i + n).discardReadBytes().readableBytes(),
                (b, i, n, _) -> {
                    int indexes = b.capacity(i + n).readerIndex() + b.writerIndex();
                    return indexes + b.capacity(CAPACITY).setZero(i + n, CAPACITY - i - n).writerIndex();
                },
                // Beyond the end.
                (b, i, _, _) -> b.getLong(i + CAPACITY - 7),
                (b, i, _, _) -> b.setBytes(-1 - i, new byte[1]),
                (b, _, n, _) -> b.nioBuffer(CAPACITY, n),
                (b, i, n, _) -> b.getBytes(i, new byte[n], 1, n),
                (b, _, n, _) -> b.setBytes(CAPACITY, ByteBuffer.allocate(n)),
                (b, _, _, _) -> b.array(),
                (b, _, _, _) -> b.capacity(-1)));
    }

    private static Object result(Operation operation, ByteBuf on, int index, int length, long seed) {
        try {
            return operation.on(on, index, length, new Random(seed));
        } catch (Exception error) {
            return error.getClass();
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3})
    void eachOperationHasTheResultOfNettysBuffers(long seed) {
        Random random = new Random(seed);
        ByteBuf ours = allocator.directBuffer(CAPACITY, CAPACITY);
        ByteBuf nettys = Unpooled.directBuffer(CAPACITY, CAPACITY);
        byte[] start = bytes(CAPACITY, random);
        ours.writeBytes(start);
        nettys.writeBytes(start);
        for (int i = 0; i < 5000; i++) {
            int operation = random.nextInt(operations.size());
            int length = 8 + random.nextInt(random.nextInt(10) == 0 ? 10_000 : 100);
            int index = random.nextInt(CAPACITY - length - 2);
            long seedOfOperation = random.nextLong();
            assertThat(result(operations.get(operation), ours, index, length, seedOfOperation))
                    .as("operation %d on %d bytes at %d", operation, length, index)
                    .isEqualTo(result(operations.get(operation), nettys, index, length, seedOfOperation));
            ours.setIndex(0, CAPACITY);
            nettys.setIndex(0, CAPACITY);
            assertThat(ours).as("after operation %d on %d bytes at %d", operation, length, index).isEqualTo(nettys);
        }
        ours.release();
        nettys.release();
    }

    @Test
    void filesAreReadAndWritten(@TempDir Path folder) throws Exception {
        byte[] all = bytes(CAPACITY, new Random(1));
        List<ChannelOperation> writes = List.of(
                (b, i, n, channel) -> b.getBytes(i, channel, n), (b, i, n, channel) -> b.getBytes(i, channel, 0, n));
        List<ChannelOperation> reads = List.of(
                (b, i, n, channel) -> b.setBytes(i, channel, n), (b, i, n, channel) -> b.setBytes(i, channel, 0, n));
        for (int way = 0; way < writes.size(); way++) {
            Path file = folder.resolve("file-" + way);
            ByteBuf buffer = allocator.directBuffer(CAPACITY).writeBytes(all);
            try (FileChannel channel = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
                assertThat(writes.get(way).on(buffer, 100, 10_000, channel)).isEqualTo(10_000);
            }
            assertThat(Files.readAllBytes(file)).isEqualTo(Arrays.copyOfRange(all, 100, 10_100));
            FileChannel channel = FileChannel.open(file);
            assertThat(reads.get(way).on(buffer, 5000, 15_000, channel)).isEqualTo(10_000);
            channel.close();
            assertThat(reads.get(way).on(buffer, 5000, 15_000, channel)).isEqualTo(-1);
            assertThat(buffer.slice(5000, 10_000)).isEqualTo(Unpooled.wrappedBuffer(all, 100, 10_000));
            buffer.release();
        }
    }

    @Test
    void aReleasedBufferIsNotUsed() {
        ByteBuf ours = allocator.directBuffer(CAPACITY);
        ours.release();
        ByteBuf nettys = Unpooled.directBuffer(CAPACITY);
        nettys.release();
        for (int i = 0; i < operations.size(); i++) {
            assertThat(result(operations.get(i), ours, 1, 8, 1))
                    .as("operation %d", i)
                    .isEqualTo(result(operations.get(i), nettys, 1, 8, 1));
        }
    }
}
