package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/// Memory that idle threads freed can be allocated by others. `-Dhugewise.test.threads=10000` and
/// `-Dhugewise.test.virtualThreads=1000000` set the numbers of threads.
class IdleThreadsTest {
    private static final long SIZE = 256 << 20;

    @ParameterizedTest
    @ValueSource(longs = {64, 592, 4096, 65536})
    void memoryFreedByIdlePlatformThreadsIsWithinReach(long size) throws Exception {
        check(Integer.getInteger("hugewise.test.threads", 500), Thread.ofPlatform().stackSize(128 << 10).factory(), size);
    }

    @ParameterizedTest
    @ValueSource(longs = {64, 592, 4096, 65536})
    void memoryFreedByIdleVirtualThreadsIsWithinReach(long size) throws Exception {
        check(Integer.getInteger("hugewise.test.virtualThreads", 20_000), Thread.ofVirtual().factory(), size);
    }

    private static void check(int count, ThreadFactory threads, long size) throws Exception {
        var ready = new CountDownLatch(count);
        var end = new CountDownLatch(1);
        var failure = new AtomicReference<Throwable>();
        Thread[] started = new Thread[count];
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(SIZE).only(Backing.base()))) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            for (int i = 0; i < count; i++) {
                int seed = i;
                started[i] = threads.newThread(() -> {
                    try {
                        allocateAndFree(allocator, new SplittableRandom(seed));
                        ready.countDown();
                        end.await();
                    } catch (Throwable error) {
                        failure.set(error);
                        ready.countDown();
                    }
                });
                started[i].start();
            }
            ready.await();
            assertThat(failure.get()).isNull();
            assertThat(allocator.live()).isZero();
            long allocated = 0;
            for (long offset; (offset = allocator.tryAllocateOffset(size)) >= 0; ) {
                allocated += allocator.sizeAt(offset);
            }
            assertThat(allocated).isGreaterThan(SIZE / 100 * 95);
        } finally {
            end.countDown();
            for (Thread thread : started) {
                thread.join();
            }
        }
    }

    private static void allocateAndFree(HugeAllocator allocator, SplittableRandom random) {
        long[] offsets = new long[20];
        for (int i = 0; i < offsets.length; i++) {
            offsets[i] = allocator.allocateOffset(16L << random.nextInt(13));
        }
        for (long offset : offsets) {
            allocator.freeOffset(offset);
        }
    }
}
