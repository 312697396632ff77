package io.hugewise.netty;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import io.hugewise.memory.MemoryExhaustedException;
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.CompositeByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.util.IllegalReferenceCountException;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

class HugeByteBufAllocatorTest {
    private static final int MIB = 1 << 20;

    private final HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(8 * MIB).only(Backing.base()));
    private final HugeAllocator memory = HugeAllocator.of(arena);
    private final HugeByteBufAllocator allocator = new HugeByteBufAllocator(memory);

    @AfterEach
    void allBlocksAreFree() {
        if (arena.scope().isAlive()) {
            assertThat(memory.live()).isZero();
            assertThat(allocator.metric().usedDirectMemory()).isZero();
            assertThat(allocator.metric().usedHeapMemory()).isZero();
            arena.close();
        }
    }

    private static byte[] random(int length) {
        byte[] bytes = new byte[length];
        new Random(length).nextBytes(bytes);
        return bytes;
    }

    private static byte[] contents(ByteBuf buffer) {
        byte[] bytes = new byte[buffer.readableBytes()];
        buffer.getBytes(buffer.readerIndex(), bytes);
        return bytes;
    }

    @Test
    @Tag("pools")
    void theExampleOfThePageRuns() {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(64L << 20).named("netty"))) {
            var allocator = new HugeByteBufAllocator(HugeAllocator.of(arena));
            var server = new ServerBootstrap().childOption(ChannelOption.ALLOCATOR, allocator);
            ByteBuf buffer = allocator.directBuffer(1024).writeLong(42);
            buffer.release();
        }
    }

    @Test
    void directBuffersAreBlocks() {
        List<ByteBuf> buffers = List.of(
                allocator.directBuffer(),
                allocator.directBuffer(1000),
                allocator.directBuffer(10, 20),
                allocator.buffer(300),
                allocator.ioBuffer(5000));
        assertThat(buffers).allMatch(ByteBuf::isDirect).allMatch(buffer -> buffer.alloc() == allocator);
        assertThat(allocator.metric().usedDirectMemory()).isEqualTo(256 + 1000 + 10 + 300 + 5000);
        assertThat(memory.live()).isBetween(256L + 1000 + 10 + 300 + 5000, 256L + 1024 + 16 + 320 + 5120);
        for (ByteBuf buffer : buffers) {
            buffer.setLong(2, 0x0102_0304_0506_0708L);
            MemorySegment block = MemorySegment.ofBuffer(buffer.nioBuffer(2, 8));
            long offset = block.address() - memory.memory().address();
            assertThat(memory.memory().asSlice(offset, 8).mismatch(MemorySegment.ofArray(new byte[] {1, 2, 3, 4, 5, 6, 7, 8})))
                    .isEqualTo(-1);
            assertThat(buffer.release()).isTrue();
        }
    }

    @Test
    void heapBuffersAreOnTheHeap() {
        ByteBuf buffer = allocator.heapBuffer(100).writeBytes(random(5000));
        assertThat(buffer.hasArray()).isTrue();
        assertThat(contents(buffer)).isEqualTo(random(5000));
        assertThat(memory.live()).isZero();
        assertThat(allocator.metric().usedHeapMemory()).isEqualTo(buffer.capacity());
        buffer.release();
    }

    @Test
    void aBufferKeepsItsContentsWhenItsCapacityChanges() {
        ByteBuf buffer = allocator.directBuffer(0);
        byte[] all = random(2 * MIB);
        for (int written = 0; written < all.length; written = buffer.writerIndex()) {
            buffer.writeBytes(all, written, Math.min(all.length - written, 1 + written / 3));
        }
        assertThat(contents(buffer)).isEqualTo(all);
        // Only the last block is left.
        assertThat(memory.live()).isEqualTo(2 * MIB);
        buffer.capacity(1000);
        assertThat(contents(buffer)).isEqualTo(Arrays.copyOf(all, 1000));
        assertThat(memory.live()).isLessThan(1100);
        buffer.capacity(0);
        assertThat(buffer.release()).isTrue();
    }

    @Test
    void theLastReferenceFreesTheBlock() {
        ByteBuf buffer = allocator.directBuffer().writeBytes(random(200));
        ByteBuf slice = buffer.retainedSlice(50, 100);
        assertThat(buffer.release()).isFalse();
        assertThat(contents(slice)).isEqualTo(Arrays.copyOfRange(random(200), 50, 150));
        assertThat(memory.live()).isPositive();
        assertThat(slice.release()).isTrue();
        assertThat(memory.live()).isZero();
        assertThatThrownBy(() -> buffer.getByte(0)).isInstanceOf(IllegalReferenceCountException.class);
        assertThatThrownBy(buffer::release).isInstanceOf(IllegalReferenceCountException.class);
    }

    @Test
    void compositeBuffersGrowInBlocks() {
        CompositeByteBuf composite = allocator.compositeBuffer();
        composite.addComponents(
                true, allocator.directBuffer().writeBytes(random(100)), allocator.heapBuffer().writeBytes(random(200)));
        composite.writeBytes(random(300));
        ByteBuf all = Unpooled.wrappedBuffer(random(100), random(200), random(300));
        assertThat(contents(composite)).isEqualTo(contents(all));
        assertThat(memory.live()).isGreaterThanOrEqualTo(100 + 300);
        assertThat(composite.release()).isTrue();
    }

    @Test
    void fullMemoryIsAnOutOfMemoryErrorThatLosesNothing() {
        List<ByteBuf> buffers = new ArrayList<>();
        assertThatThrownBy(() -> {
                    while (true) {
                        buffers.add(allocator.directBuffer(MIB));
                    }
                })
                .isInstanceOf(OutOfMemoryError.class)
                .hasCauseInstanceOf(MemoryExhaustedException.class)
                .hasMessageContaining("reserve more");
        assertThat(buffers).hasSizeGreaterThanOrEqualTo(6);
        assertThat(allocator.metric().usedDirectMemory()).isEqualTo((long) buffers.size() * MIB);
        ByteBuf last = buffers.getLast().writeBytes(random(MIB));
        assertThatThrownBy(() -> last.writeByte(1)).isInstanceOf(OutOfMemoryError.class);
        assertThat(contents(last)).isEqualTo(random(MIB));
        buffers.forEach(ByteBuf::release);
        allocator.directBuffer(2 * MIB).release();
    }

    @Test
    void useAfterTheArenaWasClosedIsAnException() {
        ByteBuf buffer = allocator.directBuffer().writeLong(42);
        arena.close();
        assertThatThrownBy(() -> buffer.getLong(0)).isInstanceOf(IllegalStateException.class);
        assertThatThrownBy(allocator::directBuffer).isInstanceOf(IllegalStateException.class);
    }

    @Test
    @SuppressWarnings("deprecation") // Its replacement is not in Netty 4.1.
    void channelsReadAndWriteBlocks() throws Exception {
        byte[] sent = random(500_000);
        ByteBuf received = allocator.buffer();
        var echoed = new CompletableFuture<byte[]>();
        var server = new ChannelInboundHandlerAdapter() {
            @Override
            public void channelRead(ChannelHandlerContext context, Object message) {
                assertThat(((ByteBuf) message).alloc()).isSameAs(allocator);
                context.writeAndFlush(message);
            }

            @Override
            public void exceptionCaught(ChannelHandlerContext context, Throwable error) {
                echoed.completeExceptionally(error);
            }
        };
        var client = new SimpleChannelInboundHandler<ByteBuf>() {
            @Override
            protected void channelRead0(ChannelHandlerContext context, ByteBuf part) {
                received.writeBytes(part);
                if (received.readableBytes() == sent.length) {
                    echoed.complete(contents(received));
                }
            }

            @Override
            public void exceptionCaught(ChannelHandlerContext context, Throwable error) {
                echoed.completeExceptionally(error);
            }
        };
        EventLoopGroup group = new NioEventLoopGroup(2);
        try {
            Channel listening = new ServerBootstrap()
                    .group(group)
                    .channel(NioServerSocketChannel.class)
                    .childOption(ChannelOption.ALLOCATOR, allocator)
                    .childHandler(server)
                    .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))
                    .sync()
                    .channel();
            Channel connected = new Bootstrap()
                    .group(group)
                    .channel(NioSocketChannel.class)
                    .option(ChannelOption.ALLOCATOR, allocator)
                    .handler(client)
                    .connect(listening.localAddress())
                    .sync()
                    .channel();
            connected.write(allocator.buffer().writeBytes(sent, 0, 100_000));
            connected.writeAndFlush(Unpooled.wrappedBuffer(sent, 100_000, 400_000));
            assertThat(echoed.get(30, TimeUnit.SECONDS)).isEqualTo(sent);
        } finally {
            group.shutdownGracefully(0, 10, TimeUnit.SECONDS).sync();
            received.release();
        }
    }
}
