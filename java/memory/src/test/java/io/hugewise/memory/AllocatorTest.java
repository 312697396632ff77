package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class AllocatorTest {
    private static final long MIB = 1 << 20;

    private static HugeArena arena(long size) {
        return HugeArena.ofShared(HugeOptions.reserve(size).only(Backing.base()));
    }

    @Test
    void eachSizeHasTheSmallestClassThatHoldsIt() {
        int[] sizes = SizeClasses.sizes();
        assertThat(sizes[sizes.length - 1]).isEqualTo(SizeClasses.LARGEST);
        for (int size = 0, index = 0; size <= SizeClasses.LARGEST; size++) {
            index += size > sizes[index] ? 1 : 0;
            assertThat(SizeClasses.of(size)).isEqualTo(index);
            assertThat(sizes[index] - size).isLessThanOrEqualTo(Math.max(16, size / 8));
            for (int alignment = 1; alignment <= Units.UNIT; alignment *= 2) {
                int aligned = SizeClasses.of(size, alignment);
                assertThat(sizes[aligned] % alignment).isZero();
                assertThat(sizes[aligned]).isGreaterThanOrEqualTo(size);
            }
        }
    }

    /// Against a model: every block keeps its contents until it is freed, and no two blocks overlap.
    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5, 6})
    void blocksAreDisjointAlignedAndKeepTheirContents(long seed) {
        SplittableRandom random = new SplittableRandom(seed);
        try (HugeArena arena = arena(24 * MIB)) {
            // Makes the allocator's memory start unaligned.
            arena.allocate(100);
            HugeAllocator allocator = HugeAllocator.of(arena);
            List<MemorySegment> live = new ArrayList<>();
            TreeMap<Long, Long> ranges = new TreeMap<>();
            for (int i = 0; i < 60_000; i++) {
                if (!live.isEmpty() && random.nextInt(100) < (i / 10_000 % 2 == 0 ? 40 : 55)) {
                    MemorySegment block = live.set(random.nextInt(live.size()), live.getLast());
                    live.removeLast();
                    assertThat(block.get(JAVA_BYTE, block.byteSize() - 1)).isEqualTo((byte) block.address());
                    if (block.byteSize() > 8) {
                        assertThat(block.get(JAVA_LONG_UNALIGNED, 0) >>> 8).isEqualTo(block.address() >>> 8);
                    }
                    ranges.remove(block.address());
                    allocator.free(block);
                    continue;
                }
                // At least one byte to mark.
                long size = 1 + random.nextLong(1L << random.nextInt(4, random.nextInt(50) == 0 ? 20 : 12));
                long alignment = random.nextInt(4) > 0 ? 16 : 1L << random.nextInt(18);
                MemorySegment block;
                try {
                    block = allocator.allocate(size, alignment);
                } catch (MemoryExhaustedException full) {
                    assertThat(ranges.values().stream().mapToLong(Long::longValue).sum()).isGreaterThan(8 * MIB);
                    continue;
                }
                assertThat(block.byteSize()).isEqualTo(size);
                assertThat(block.address() % alignment).isZero();
                var below = ranges.floorEntry(block.address() + size - 1);
                assertThat(below == null || below.getKey() + below.getValue() <= block.address()).isTrue();
                ranges.put(block.address(), size);
                if (size > 8) {
                    block.set(JAVA_LONG_UNALIGNED, 0, block.address());
                }
                block.set(JAVA_BYTE, size - 1, (byte) block.address());
                live.add(block);
            }
            live.forEach(allocator::free);
            // The memory is contiguous again, except for spans kept for the next request.
            assertThat(allocator.allocate(20 * MIB, 16).byteSize()).isEqualTo(20 * MIB);
        }
    }

    @Test
    void offsetsWithoutABlockAndDoubleFreesAreRefused() {
        try (HugeArena arena = arena(4 * MIB)) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            for (long size : new long[] {1, 48, 592, 65536, 65537, MIB}) {
                long offset = allocator.allocateOffset(size);
                assertThat(allocator.sizeAt(offset)).isGreaterThanOrEqualTo(size);
                for (long wrong : new long[] {offset + 8, offset + 16, offset - 1, -1, Long.MIN_VALUE, 4 * MIB, 1L << 50}) {
                    assertThatThrownBy(() -> allocator.freeOffset(wrong))
                            .isInstanceOfAny(IllegalArgumentException.class, IllegalStateException.class);
                }
                allocator.freeOffset(offset);
                assertThatThrownBy(() -> allocator.freeOffset(offset))
                        .isInstanceOfAny(IllegalArgumentException.class, IllegalStateException.class);
                assertThatThrownBy(() -> allocator.sizeAt(offset)).isInstanceOf(IllegalArgumentException.class);
            }
            assertThatThrownBy(() -> allocator.free(Arena.global().allocate(16))).isInstanceOf(IllegalArgumentException.class);
            assertThatThrownBy(() -> allocator.allocateOffset(-1)).isInstanceOf(IllegalArgumentException.class);
            assertThatThrownBy(() -> allocator.allocate(1, 3)).isInstanceOf(IllegalArgumentException.class);
            assertThatThrownBy(() -> allocator.allocate(Long.MAX_VALUE, 16)).isInstanceOf(MemoryExhaustedException.class);
        }
    }

    @Test
    void tooLittleMemoryAndHeapMemoryAreRefused() {
        assertThatThrownBy(() -> HugeAllocator.of(MemorySegment.ofArray(new byte[1 << 20]))).isInstanceOf(IllegalArgumentException.class);
        try (HugeArena arena = arena(MIB)) {
            assertThatThrownBy(() -> HugeAllocator.of(arena.allocate(1000))).isInstanceOf(IllegalArgumentException.class);
            assertThatThrownBy(() -> HugeAllocator.of(arena.allocate(100 << 10).asReadOnly())).isInstanceOf(IllegalArgumentException.class);
            assertThatThrownBy(() -> BlockPool.of(arena, 0)).isInstanceOf(IllegalArgumentException.class);
        }
    }

    @Test
    void memoryOfEndedThreadsIsReused() throws Exception {
        try (HugeArena arena = arena(4 * MIB)) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            for (int i = 0; i < 200; i++) {
                Thread other = Thread.ofPlatform().start(() -> {
                    for (long size : new long[] {100, 1000, 5000, 20_000, 60_000}) {
                        allocator.freeOffset(allocator.allocateOffset(size));
                    }
                });
                other.join();
            }
            assertThat(allocator.allocate(3 * MIB, 16).byteSize()).isEqualTo(3 * MIB);
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 24, 592, 4096, 100_000, 3 << 20})
    void aPoolAllocatesEachBlockOnceAndReusesAll(long blockSize) {
        try (HugeArena arena = arena(8 * MIB)) {
            BlockPool pool = BlockPool.of(arena.allocate(7 * MIB), blockSize);
            for (int round = 0; round < 2; round++) {
                Set<Long> offsets = new HashSet<>();
                long most = Math.min(7 * MIB / blockSize, 200_000);
                while (offsets.size() < most) {
                    try {
                        MemorySegment block = pool.allocate();
                        assertThat(block.byteSize()).isEqualTo(blockSize);
                        assertThat(offsets.add(block.address() - pool.memory().address())).isTrue();
                    } catch (MemoryExhaustedException _) {
                        break;
                    }
                }
                assertThat(offsets.size()).isGreaterThanOrEqualTo((int) (0.9 * most));
                long last = -blockSize;
                for (long offset : offsets.stream().sorted().toList()) {
                    assertThat(offset).isGreaterThanOrEqualTo(last + blockSize);
                    last = offset;
                    pool.freeOffset(offset);
                }
                long again = last;
                assertThatThrownBy(() -> pool.freeOffset(again)).isInstanceOf(IllegalStateException.class);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {64, 592, 4096, 65536, 1 << 20})
    void aFailedRequestMissesNothingThatIsFreedLater(long size) {
        try (HugeArena arena = arena(8 * MIB)) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            List<Long> offsets = new ArrayList<>();
            for (long offset; (offset = allocator.tryAllocateOffset(size)) >= 0; ) {
                offsets.add(offset);
            }
            assertThat(allocator.tryAllocate(size)).isNull();
            for (int i = 0; i < offsets.size(); i += 7) {
                allocator.freeOffset(offsets.get(i));
                assertThat(allocator.tryAllocateOffset(size)).isEqualTo(offsets.get(i));
                assertThat(allocator.tryAllocateOffset(size)).isEqualTo(-1);
            }
            assertThatThrownBy(() -> allocator.allocate(size)).isInstanceOfSatisfying(MemoryExhaustedException.class, full -> {
                assertThat(full.requested()).isEqualTo(size);
                assertThat(full.available()).isBetween(0L, Math.max(size, Units.UNIT));
            });
        }
    }

    @Test
    void aChangedSizeKeepsTheContents() {
        try (HugeArena arena = arena(8 * MIB)) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            long[] sizes = {1, 100, 5000, 5001, 70_000, 2 * MIB, 3000, 16};
            MemorySegment block = allocator.allocate(sizes[0]);
            byte[] contents = {};
            for (long size : sizes) {
                block = allocator.reallocate(block, size);
                assertThat(block.byteSize()).isEqualTo(size);
                int common = (int) Math.min(size, contents.length);
                assertThat(block.asSlice(0, common).mismatch(MemorySegment.ofArray(contents).asSlice(0, common))).isEqualTo(-1);
                contents = new byte[(int) size];
                new SplittableRandom(size).nextBytes(contents);
                block.copyFrom(MemorySegment.ofArray(contents));
            }
            MemorySegment last = block;
            assertThatThrownBy(() -> allocator.reallocate(last, 64 * MIB)).isInstanceOf(MemoryExhaustedException.class);
            assertThat(last.mismatch(MemorySegment.ofArray(contents))).isEqualTo(-1);
            allocator.free(last);
            assertThat(allocator.live()).isZero();
        }
    }

    @Test
    void liveIsTheSumOfAllBlocks() {
        SplittableRandom random = new SplittableRandom(3);
        try (HugeArena arena = arena(24 * MIB)) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            List<Long> offsets = new ArrayList<>();
            long live = 0;
            for (int i = 0; i < 20_000; i++) {
                if (random.nextInt(100) < 55) {
                    long offset = allocator.tryAllocateOffset(16L << random.nextInt(i % 100 == 0 ? 17 : 9));
                    if (offset >= 0) {
                        offsets.add(offset);
                        live += allocator.sizeAt(offset);
                    }
                } else if (!offsets.isEmpty()) {
                    long offset = offsets.remove(random.nextInt(offsets.size()));
                    live -= allocator.sizeAt(offset);
                    allocator.freeOffset(offset);
                }
                assertThat(i % 100 == 0 ? allocator.live() : live).isEqualTo(live);
            }
            allocator.trim();
            assertThat(allocator.live()).isEqualTo(live);
        }
    }

    /// What threads free is kept for them, also after memory was full once: else each free would be slower for ever.
    @ParameterizedTest
    @ValueSource(longs = {64, 16384, 2 << 20})
    void memoryIsKeptForThreadsAgainAfterARequestFailed(long size) {
        try (HugeArena arena = arena(64 * MIB)) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            List<Long> offsets = new ArrayList<>();
            for (long offset; (offset = allocator.tryAllocateOffset(size)) >= 0; ) {
                offsets.add(offset);
            }
            offsets.forEach(allocator::freeOffset);
            allocator.trim();
            assertThat(allocator.held()).isZero();
            allocator.freeOffset(allocator.allocateOffset(16384));
            assertThat(allocator.live()).isZero();
            assertThat(allocator.held()).isEqualTo(16384);
        }
    }

    /// The end of a span may be large enough for the beginning of another block.
    @ParameterizedTest
    @ValueSource(longs = {48, 592, 7168, 30720})
    void whereNoBlockWasAllocatedNoneCanBeFreed(long size) {
        try (HugeArena arena = arena(MIB)) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            long first = allocator.allocateOffset(size);
            for (long offset = first + size; offset < first + 128 * 1024; offset += size) {
                long other = offset;
                assertThatThrownBy(() -> allocator.freeOffset(other))
                        .isInstanceOfAny(IllegalArgumentException.class, IllegalStateException.class);
            }
        }
    }

    @Test
    void aThreadKeepsFewOfTheRunsThatItFrees() {
        try (HugeArena arena = arena(64 * MIB)) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            List<Long> offsets = new ArrayList<>();
            while (allocator.held() < 48 * MIB) {
                offsets.add(allocator.allocateOffset(16384));
            }
            offsets.forEach(allocator::freeOffset);
            // All caches keep at most 1/50 of the memory.
            assertThat(allocator.held()).isPositive().isLessThanOrEqualTo(64 * MIB / 50);
        }
    }

    /// What a thread frees beyond the little that it keeps serves others, before they take more memory.
    @Test
    void aThreadKeepsFewOfTheSlotsThatItFrees() throws Exception {
        try (HugeArena arena = arena(64 * MIB)) {
            HugeAllocator allocator = HugeAllocator.of(arena);
            List<Long> offsets = new ArrayList<>();
            while (allocator.held() < 32 * MIB) {
                offsets.add(allocator.allocateOffset(1000));
            }
            long held = allocator.held();
            offsets.forEach(allocator::freeOffset);
            Thread other = new Thread(() -> {
                for (int i = 0; i < offsets.size() * 9 / 10; i++) {
                    allocator.allocateOffset(1000);
                }
            });
            other.start();
            other.join();
            // All caches keep at most 1/50 of the memory.
            assertThat(allocator.held()).isLessThanOrEqualTo(held + 64 * MIB / 50);
        }
    }
}
