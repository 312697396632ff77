package io.hugewise.arrow;

import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import io.hugewise.memory.MemoryExhaustedException;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

class HugeAllocationManagerFactoryTest {
    private static final int MIB = 1 << 20;

    private final HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(8 * MIB).only(Backing.base()));
    private final HugeAllocator memory = HugeAllocator.of(arena);

    @AfterEach
    void allBlocksAreFree() {
        assertThat(memory.live()).isZero();
        arena.close();
    }

    private RootAllocator root() {
        var factory = new HugeAllocationManagerFactory(memory);
        return new RootAllocator(RootAllocator.configBuilder().allocationManagerFactory(factory).build());
    }

    @Test
    @Tag("pools")
    void theExampleOfThePageRuns() {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(64L << 20).named("arrow"))) {
            var factory = new HugeAllocationManagerFactory(HugeAllocator.of(arena));
            var config = RootAllocator.configBuilder().allocationManagerFactory(factory).build();
            try (var root = new RootAllocator(config); var buffer = root.buffer(1024)) {
                buffer.setLong(0, 42);
            }
        }
    }

    @Test
    void buffersAreBlocks() {
        try (RootAllocator root = root()) {
            for (long size : new long[] {8, 64, 1000, 4096, 100_000, MIB}) {
                try (ArrowBuf buffer = root.buffer(size)) {
                    assertThat(buffer.capacity()).isGreaterThanOrEqualTo(size);
                    assertThat(memory.live()).isEqualTo(Math.max(64, buffer.capacity()));
                    assertThat(buffer.memoryAddress() % 64).isZero();
                    buffer.setByte(buffer.capacity() - 1, 7);
                    buffer.writeLong(size);
                    long offset = buffer.memoryAddress() - memory.memory().address();
                    assertThat(memory.memory().get(JAVA_LONG_UNALIGNED, offset)).isEqualTo(size);
                }
                assertThat(memory.live()).isZero();
            }
        }
    }

    @Test
    void theLastReferenceFreesTheBlock() {
        try (RootAllocator root = root();
                BufferAllocator child = root.newChildAllocator("child", 0, MIB)) {
            ArrowBuf buffer = root.buffer(1000);
            buffer.writeInt(42);
            ArrowBuf ofChild = buffer.getReferenceManager().transferOwnership(buffer, child).getTransferredBuffer();
            buffer.close();
            assertThat(ofChild.getInt(0)).isEqualTo(42);
            assertThat(child.getAllocatedMemory()).isEqualTo(1024);
            ArrowBuf slice = ofChild.slice(0, 4);
            slice.getReferenceManager().retain();
            ofChild.close();
            assertThat(memory.live()).isEqualTo(1024);
            slice.close();
            assertThat(memory.live()).isZero();
        }
    }

    @Test
    void theEmptyBufferHasNoBlock() {
        try (RootAllocator root = root();
                ArrowBuf empty = root.buffer(0)) {
            assertThat(empty.capacity()).isZero();
            assertThat(empty.nioBuffer(0, 0).remaining()).isZero();
            assertThat(memory.live()).isZero();
        }
    }

    @Test
    void fullMemoryIsAnExceptionThatLosesNothing() {
        try (RootAllocator root = root()) {
            List<ArrowBuf> buffers = new ArrayList<>();
            assertThatThrownBy(() -> {
                        while (true) {
                            buffers.add(root.buffer(MIB));
                        }
                    })
                    .isInstanceOf(OutOfMemoryException.class)
                    .hasCauseInstanceOf(MemoryExhaustedException.class)
                    .hasMessageContaining("reserve more");
            assertThat(buffers).hasSizeGreaterThanOrEqualTo(6);
            assertThat(root.getAllocatedMemory()).isEqualTo((long) buffers.size() * MIB);
            buffers.forEach(ArrowBuf::close);
            root.buffer(2 * MIB).close();
        }
    }
}
