package io.hugewise.agrona;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import io.hugewise.memory.MemoryExhaustedException;
import java.lang.foreign.MemorySegment;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

class HugeBuffersTest {
    private static final int MIB = 1 << 20;

    private final HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(4 * MIB).only(Backing.base()));
    private final HugeAllocator memory = HugeAllocator.of(arena);

    @AfterEach
    void allBlocksAreFree() {
        assertThat(memory.live()).isZero();
        arena.close();
    }

    @Test
    @Tag("pools")
    void theExampleOfThePageRuns() {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(64L << 20).named("agrona"))) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            UnsafeBuffer buffer = HugeBuffers.allocate(allocator, 1024);
            buffer.putLongVolatile(8, 42);
            HugeBuffers.free(allocator, buffer);
        }
    }

    @Test
    void aBufferIsABlock() {
        UnsafeBuffer buffer = HugeBuffers.allocate(memory, 1000);
        assertThat(memory.live()).isBetween(1000L, 1024L);
        buffer.verifyAlignment();
        buffer.putLong(992, 42);
        long offset = buffer.addressOffset() - memory.memory().address();
        assertThat(memory.memory().get(JAVA_LONG, offset + 992)).isEqualTo(42);
        assertThat(buffer.getAndAddLong(992, 1)).isEqualTo(42);
        assertThat(buffer.byteBuffer().getLong(992)).isEqualTo(Long.reverseBytes(43));
        assertThatThrownBy(() -> buffer.putLong(993, 1)).isInstanceOf(IndexOutOfBoundsException.class);
        HugeBuffers.free(memory, buffer);
    }

    @Test
    void aFreedBufferIsNotUsed() {
        UnsafeBuffer buffer = HugeBuffers.allocate(memory, 1000);
        HugeBuffers.free(memory, buffer);
        assertThatThrownBy(() -> buffer.putByte(0, (byte) 1)).isInstanceOf(IndexOutOfBoundsException.class);
        assertThatThrownBy(() -> HugeBuffers.free(memory, buffer)).isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> HugeBuffers.free(memory, new UnsafeBuffer(new byte[10])))
                .isInstanceOf(IllegalArgumentException.class);
    }

    @Test
    void anySegmentCanBeWrapped() {
        MemorySegment segment = memory.allocate(100);
        UnsafeBuffer buffer = HugeBuffers.wrap(segment.asSlice(10, 20));
        assertThat(buffer.capacity()).isEqualTo(20);
        buffer.putByte(19, (byte) 7);
        assertThat(segment.get(JAVA_BYTE, 29)).isEqualTo((byte) 7);
        assertThatThrownBy(() -> HugeBuffers.wrap(segment.asReadOnly())).isInstanceOf(IllegalArgumentException.class);
        memory.free(segment);
    }

    @Test
    void fullMemoryIsAnException() {
        assertThatThrownBy(() -> HugeBuffers.allocate(memory, 8 * MIB)).isInstanceOf(MemoryExhaustedException.class);
        assertThatThrownBy(() -> HugeBuffers.allocate(memory, -1)).isInstanceOf(IllegalArgumentException.class);
    }
}
