package io.hugewise.netty;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import io.netty.buffer.ByteBuf;
import java.time.Duration;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/// Stack overflows at random depths of allocating, growing and releasing buffers: no block is lost.
@Timeout(value = 600, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class OverflowTest {
    private static final Duration LONG = Duration.ofSeconds(120);
    private static final int OVERFLOWS = 10 * Integer.getInteger("hugewise.overflows", 3);
    private static final int STACK_BYTES = 256 << 10;
    private static final int MOST = 1 << 14;

    private final ByteBuf[] buffers = new ByteBuf[MOST];
    private int count;

    private long deeper(HugeByteBufAllocator allocator, int number, int kind) {
        if (kind == 0 || count == 0) {
            buffers[count] = allocator.directBuffer(100 + number % 500);
            count++;
        } else if (kind == 1) {
            buffers[count - 1].capacity(100 + number % 900);
        }
        if (kind == 2) {
            buffers[count] = allocator.directBuffer(100 + number % 500);
            count++;
            // If it throws, there is a reference still.
            buffers[count - 1].release();
            count--;
        } else if (kind == 3) {
            buffers[count - 1].retain();
            ByteBuf slice = buffers[count - 1].slice(0, 10);
            slice.release();
        }
        return 1 + deeper(allocator, number + 1, kind);
    }

    @Test
    void noBlockIsLost() throws Exception {
        var random = new Random(1);
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(64 << 20).only(Backing.base()))) {
            HugeAllocator memory = HugeAllocator.of(arena);
            var allocator = new HugeByteBufAllocator(memory);
            for (int i = 0; i < OVERFLOWS; i++) {
                int kind = i % 4;
                Thread thread = new Thread(null, () -> {
                    try {
                        deeper(allocator, random.nextInt(1000), kind);
                    } catch (StackOverflowError _) {
                        // As it should.
                    }
                }, "overflowing", STACK_BYTES + random.nextInt(64) * 1024);
                thread.setDaemon(true);
                thread.start();
                assertThat(thread.join(LONG)).isTrue();
                while (count > 0) {
                    ByteBuf buffer = buffers[--count];
                    buffer.release(buffer.refCnt());
                }
                assertThat(memory.live()).as("kind %d", kind).isZero();
                assertThat(allocator.metric().usedDirectMemory()).as("kind %d", kind).isZero();
            }
        }
    }
}
