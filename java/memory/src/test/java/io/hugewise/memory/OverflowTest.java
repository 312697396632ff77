package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/// Stack overflows at random depths of each operation of the allocators: other threads go on, and no block is lost.
@Timeout(value = 1800, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class OverflowTest {
    private static final Duration LONG = Duration.ofSeconds(120);
    /// Of each operation.
    private static final int OVERFLOWS = Integer.getInteger("hugewise.overflows", 2);
    private static final int STACK_BYTES = 256 << 10;
    private static final int MOST = 1 << 14;

    /// Blocks of a thread that are in use.
    private static final class Taken {
        final MemorySegment[] segments = new MemorySegment[MOST];
        final long[] offsets = new long[MOST];
        int count;
    }

    private static long deeper(Runnable operation, int stride, int wide) {
        if (wide % stride == 0) {
            operation.run();
        }
        return 1 + ((wide & 64) == 0 ? deeper(operation, stride, wide + 1) : wider(operation, stride, wide + 1));
    }

    /// The same with a frame of another size.
    private static long wider(Runnable operation, int stride, int wide) {
        long a = wide + stride;
        long b = a * wide;
        long c = a ^ b;
        if (wide % stride == 0) {
            operation.run();
        }
        return deeper(operation, stride, wide + 1) + a + b + c;
    }

    private static void overflow(String name, Runnable operation, Random random) throws InterruptedException {
        int stride = 1 + random.nextInt(16);
        int wide = random.nextInt(64);
        Thread thread = new Thread(null, () -> {
            try {
                deeper(operation, stride, wide);
            } catch (StackOverflowError _) {
                // As it should.
            }
        }, "overflowing", STACK_BYTES + random.nextInt(32) * 4096);
        run(name, thread);
    }

    private static void run(String name, Thread thread) throws InterruptedException {
        var failures = new ConcurrentLinkedQueue<Throwable>();
        thread.setUncaughtExceptionHandler((_, error) -> failures.add(error));
        thread.setDaemon(true);
        thread.start();
        assertThat(thread.join(LONG)).as("%s: %s", name, Arrays.toString(thread.getStackTrace())).isTrue();
        assertThat(failures).as(name).isEmpty();
    }

    private static int size(int number) {
        return 1 + (int) (Integer.toUnsignedLong(number * 0x9E37_79B1) % (switch (number & 7) {
            case 0 -> 200_000;
            case 1, 2 -> 40_000;
            default -> 500;
        }));
    }

    /// The operations; each leaves the blocks that are in use in `taken`.
    private static Map<String, Consumer<Taken>> operations(HugeAllocator allocator) {
        Map<String, Consumer<Taken>> all = new LinkedHashMap<>();
        all.put("allocate", taken -> {
            taken.segments[taken.count] = allocator.allocate(size(taken.count));
            taken.count++;
        });
        all.put("free", taken -> {
            if (taken.count > 0) {
                allocator.free(taken.segments[taken.count - 1]);
                taken.count--;
            }
        });
        all.put("allocate and free", taken -> {
            taken.segments[taken.count] = allocator.allocate(size(taken.count));
            taken.count++;
            allocator.free(taken.segments[taken.count - 1]);
            taken.count--;
        });
        all.put("allocate aligned", taken -> {
            taken.segments[taken.count] = allocator.allocate(size(taken.count), 4096);
            taken.count++;
        });
        all.put("tryAllocate", taken -> {
            MemorySegment block = allocator.tryAllocate(size(taken.count));
            taken.segments[taken.count] = block;
            taken.count += block == null ? 0 : 1;
        });
        all.put("allocateZeroed", taken -> {
            taken.segments[taken.count] = allocator.allocateZeroed(size(taken.count));
            taken.count++;
        });
        all.put("reallocate", taken -> {
            if (taken.count == 0) {
                taken.segments[0] = allocator.allocate(100);
                taken.count = 1;
            }
            taken.segments[taken.count - 1] = allocator.reallocate(taken.segments[taken.count - 1], size((int) taken.segments[taken.count - 1].byteSize()));
        });
        all.put("sizes", taken -> {
            if (taken.count > 0) {
                allocator.sizeAt(taken.segments[taken.count - 1].address() - allocator.memory().address());
            }
            allocator.held();
            allocator.reached();
        });
        all.put("live", _ -> allocator.live());
        all.put("trim", _ -> allocator.trim());
        return all;
    }

    @Test
    void anAllocatorLosesNoBlock() throws Exception {
        var random = new Random(1);
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(64 << 20).only(Backing.base()))) {
            HugeAllocator allocator = HugeAllocator.decommitting(arena, Duration.ofNanos(1));
            for (int i = 0; i < OVERFLOWS; i++) {
                for (var operation : operations(allocator).entrySet()) {
                    var taken = new Taken();
                    overflow(operation.getKey(), () -> {
                        try {
                            operation.getValue().accept(taken);
                        } catch (MemoryExhaustedException _) {
                            // Others follow.
                        }
                    }, random);
                    run(operation.getKey(), new Thread(() -> {
                        while (taken.count > 0) {
                            allocator.free(taken.segments[--taken.count]);
                        }
                    }));
                    assertThat(allocator.live()).as(operation.getKey()).isZero();
                    run(operation.getKey(), new Thread(() -> useAll(allocator)));
                }
            }
            allocator.trim();
            assertThat(allocator.held()).isZero();
        }
    }

    /// Allocates all memory in blocks of one size, which needs what other threads keep, and frees it.
    private static void useAll(HugeAllocator allocator) {
        var taken = new Taken();
        for (MemorySegment block = allocator.tryAllocate(60_000); block != null; block = allocator.tryAllocate(60_000)) {
            taken.segments[taken.count++] = block;
        }
        assertThat(taken.count).isGreaterThan(1000);
        while (taken.count > 0) {
            allocator.free(taken.segments[--taken.count]);
        }
    }

    @Test
    void poolsLoseNoBlock() throws Exception {
        var random = new Random(2);
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(16 << 20).only(Backing.base()))) {
            BlockPool blocks = BlockPool.of(arena.allocate(8 << 20), 3000);
            SegmentPool segments = SegmentPool.of(arena, 64 << 10, 1);
            Map<String, Consumer<Taken>> all = new LinkedHashMap<>();
            all.put("block", taken -> {
                taken.segments[taken.count] = blocks.allocate();
                taken.count++;
                if ((taken.count & 3) == 0) {
                    blocks.free(taken.segments[taken.count - 1]);
                    taken.count--;
                }
            });
            all.put("segment", taken -> {
                taken.offsets[taken.count] = segments.acquire();
                taken.count++;
                if ((taken.count & 3) == 0) {
                    segments.release((int) taken.offsets[taken.count - 1]);
                    taken.count--;
                }
            });
            for (int i = 0; i < OVERFLOWS; i++) {
                for (var operation : all.entrySet()) {
                    var taken = new Taken();
                    overflow(operation.getKey(), () -> {
                        try {
                            operation.getValue().accept(taken);
                        } catch (MemoryExhaustedException _) {
                            // Others follow.
                        }
                    }, random);
                    run(operation.getKey(), new Thread(() -> {
                        while (taken.count > 0) {
                            if (operation.getKey().equals("block")) {
                                blocks.free(taken.segments[--taken.count]);
                            } else {
                                segments.release((int) taken.offsets[--taken.count]);
                            }
                        }
                    }));
                    assertThat(blocks.held()).isZero();
                    assertThat(segments.free()).isEqualTo(segments.count());
                }
            }
        }
    }
}
