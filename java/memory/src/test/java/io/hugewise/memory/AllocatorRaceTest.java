package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/// Many threads at once. The owner of a block fills it with its mark and checks the mark before it frees the
/// block, which detects blocks with two owners.
class AllocatorRaceTest {
    private static final long MIB = 1 << 20;
    private static final int THREADS = 8;
    private static final int ROUNDS = Integer.getInteger("hugewise.test.rounds", 200_000);

    private record Owned(MemorySegment block, long mark) {
        static Owned of(MemorySegment block, long mark) {
            for (long at = 0; at + 8 <= block.byteSize(); at += 8) {
                block.set(JAVA_LONG, at, mark);
            }
            return new Owned(block, mark);
        }

        MemorySegment checked() {
            for (long at = 0; at + 8 <= block.byteSize(); at += 8) {
                if (block.get(JAVA_LONG, at) != mark) {
                    throw new AssertionError("another thread wrote to " + block);
                }
            }
            return block;
        }
    }

    /// Blocks are passed between threads and freed by their last owner.
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void noBlockHasTwoOwners(boolean virtual) throws Exception {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(64 * MIB).only(Backing.base()))) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            ArrayBlockingQueue<Owned> passed = new ArrayBlockingQueue<>(256);
            run(virtual, thread -> () -> {
                SplittableRandom random = new SplittableRandom(thread);
                List<Owned> mine = new ArrayList<>();
                for (long i = 0; i < ROUNDS; i++) {
                    if (mine.size() < 100 && random.nextInt(3) > 0) {
                        long size = 8 + random.nextLong(1L << random.nextInt(4, random.nextInt(200) == 0 ? 18 : 9));
                        mine.add(Owned.of(allocator.allocate(size), (long) thread << 32 | i));
                    } else if (!mine.isEmpty()) {
                        Owned own = mine.set(random.nextInt(mine.size()), mine.getLast());
                        mine.removeLast();
                        Owned other = passed.offer(own) ? null : own;
                        other = other == null && random.nextBoolean() ? passed.poll() : other;
                        if (other != null) {
                            allocator.free(other.checked());
                        }
                    }
                }
                mine.forEach(own -> allocator.free(own.checked()));
                return null;
            });
            passed.forEach(own -> allocator.free(own.checked()));
            assertThat(allocator.allocate(50 * MIB, 16).byteSize()).isEqualTo(50 * MIB);
        }
    }

    /// With memory always nearly exhausted, caches are emptied while other threads fill theirs.
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void noBlockHasTwoOwnersWhenMemoryIsExhausted(boolean virtual) throws Exception {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(MIB).only(Backing.base()))) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            run(virtual, thread -> () -> {
                SplittableRandom random = new SplittableRandom(thread);
                List<Owned> mine = new ArrayList<>();
                for (long i = 0; i < ROUNDS / 4; i++) {
                    try {
                        mine.add(Owned.of(allocator.allocate(8 + random.nextLong(1L << random.nextInt(4, 15))), (long) thread << 32 | i));
                    } catch (MemoryExhaustedException full) {
                        mine.forEach(own -> allocator.free(own.checked()));
                        mine.clear();
                    }
                }
                mine.forEach(own -> allocator.free(own.checked()));
                return null;
            });
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {16, 592})
    void aPoolAllocatesEachBlockToOneThread(long blockSize) throws Exception {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(8 * MIB).only(Backing.base()))) {
            BlockPool pool = BlockPool.of(arena, blockSize);
            AtomicIntegerArray owners = new AtomicIntegerArray((int) (8 * MIB / blockSize));
            run(false, thread -> () -> {
                SplittableRandom random = new SplittableRandom(thread);
                List<Long> mine = new ArrayList<>();
                for (long i = 0; i < 2 * ROUNDS; i++) {
                    if (mine.size() < 500 && random.nextInt(5) > 1) {
                        long offset = pool.allocateOffset();
                        assertThat(owners.getAndIncrement((int) (offset / blockSize))).isZero();
                        mine.add(offset);
                    } else if (!mine.isEmpty()) {
                        long offset = mine.removeLast();
                        assertThat(owners.decrementAndGet((int) (offset / blockSize))).isZero();
                        pool.freeOffset(offset);
                    }
                }
                mine.forEach(offset -> {
                    owners.decrementAndGet((int) (offset / blockSize));
                    pool.freeOffset(offset);
                });
                return null;
            });
        }
    }

    /// An arena used by several threads allocates each byte once; after it is closed, they get exceptions.
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3})
    void anArenaIsClosedDuringUse(int seed) throws Exception {
        HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(32 * MIB).only(Backing.base()));
        ConcurrentHashMap<Long, Long> starts = new ConcurrentHashMap<>();
        run(false, thread -> () -> {
            SplittableRandom random = new SplittableRandom(seed * 100L + thread);
            try {
                for (int i = 0; i < 20_000; i++) {
                    MemorySegment segment = arena.allocate(1 + random.nextLong(64), 1L << random.nextInt(6));
                    assertThat(starts.put(segment.address(), segment.byteSize())).isNull();
                    segment.set(JAVA_BYTE, 0, (byte) 1);
                    if (thread == 0 && i == 15_000) {
                        closeWhenUnused(arena);
                    }
                }
                assertThat(thread).isNotZero();
            } catch (IllegalStateException closed) {
                assertThat(arena.scope().isAlive()).isFalse();
            }
            return null;
        });
        long end = 0;
        for (var start : starts.entrySet().stream().sorted(Map.Entry.comparingByKey()).toList()) {
            assertThat(start.getKey()).isGreaterThanOrEqualTo(end);
            end = start.getKey() + start.getValue();
        }
    }

    private static void closeWhenUnused(HugeArena arena) {
        while (arena.scope().isAlive()) {
            try {
                arena.close();
            } catch (IllegalStateException inUse) {
                Thread.onSpinWait();
            }
        }
    }

    private interface Job {
        Callable<Void> of(int thread);
    }

    private static void run(boolean virtual, Job job) throws Exception {
        try (ExecutorService threads = virtual ? Executors.newVirtualThreadPerTaskExecutor() : Executors.newFixedThreadPool(THREADS)) {
            List<Future<Void>> all = new ArrayList<>();
            for (int thread = 0; thread < THREADS; thread++) {
                all.add(threads.submit(job.of(thread)));
            }
            for (Future<Void> one : all) {
                one.get();
            }
        }
    }
}
