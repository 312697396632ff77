package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/// Read from the kernel: pages without blocks are no longer resident, and pages with blocks stay.
class DecommitTest {
    private static final long MIB = 1 << 20;
    private static final long SIZE = 64 * MIB;

    private static HugeArena arena(String backing) {
        return HugeArena.ofShared(HugeOptions.reserve(SIZE).only(Backing.parse(backing)));
    }

    private static long resident(HugeArena arena) {
        return switch (arena.coverage()) {
            case Coverage.Known known -> known.resident();
            case Coverage.Unknown unknown -> throw new AssertionError(unknown.reason());
        };
    }

    private static List<Long> filled(HugeAllocator allocator, long size) {
        List<Long> offsets = new ArrayList<>();
        for (long offset; (offset = allocator.tryAllocateOffset(size)) >= 0; ) {
            allocator.memory().asSlice(offset, size).fill((byte) offsets.size());
            offsets.add(offset);
        }
        return offsets;
    }

    @ParameterizedTest
    @ValueSource(strings = {"base", "thp"})
    void trimReturnsPagesWithoutBlocks(String backing) {
        for (long size : new long[] {592, 4096, 65536, 3 * MIB}) {
            try (HugeArena arena = arena(backing)) {
                HugeAllocator allocator = HugeAllocator.decommitting(arena, Duration.ofDays(1));
                List<Long> offsets = filled(allocator, size);
                assertThat(resident(arena)).isGreaterThan(SIZE / 100 * 90);
                long kept = offsets.removeLast();
                byte content = allocator.memory().get(JAVA_BYTE, kept);
                offsets.forEach(allocator::freeOffset);
                assertThat(resident(arena)).isGreaterThan(SIZE / 100 * 90);
                allocator.trim();
                // The pages of the block that was kept, and those of its span.
                assertThat(resident(arena)).isLessThanOrEqualTo(6 * MIB).isLessThanOrEqualTo(allocator.touched());
                assertThat(allocator.memory().asSlice(kept, size).elements(JAVA_BYTE).allMatch(of -> of.get(JAVA_BYTE, 0) == content))
                        .isTrue();
                // Memory that was returned is memory again; the span that was kept may divide the rest less well.
                assertThat(filled(allocator, size).size() * size).isGreaterThan((offsets.size() * size) / 1000 * 998);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"base", "thp"})
    void pagesAreReturnedAfterTheirTime(String backing) {
        var clock = new AtomicLong();
        try (HugeArena arena = arena(backing)) {
            HugeAllocator allocator = HugeAllocator.decommitting(arena, 10, clock::get);
            List<Long> offsets = filled(allocator, 4096);
            offsets.subList(0, offsets.size() / 2).forEach(allocator::freeOffset);
            assertThat(resident(arena)).isGreaterThan(SIZE / 100 * 90);
            for (int period = 0; period < 3; period++) {
                clock.addAndGet(10);
                for (int i = 0; i < 64; i++) {
                    allocator.freeOffset(allocator.allocateOffset(100_000));
                }
            }
            assertThat(resident(arena)).isLessThan(SIZE / 100 * 55);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"base", "thp"})
    void zeroedBlocksAreZeroAfterAnyHistory(String backing) {
        for (boolean decommitting : new boolean[] {false, true}) {
            try (HugeArena arena = arena(backing)) {
                HugeAllocator allocator =
                        decommitting ? HugeAllocator.decommitting(arena, 0, () -> 0) : HugeAllocator.of(arena);
                for (long size : new long[] {1, 48, 592, 4096, 65536, 65537, MIB, 5 * MIB}) {
                    for (int round = 0; round < 3; round++) {
                        List<Long> dirty = filled(allocator, 65536);
                        dirty.forEach(allocator::freeOffset);
                        MemorySegment block = allocator.allocateZeroed(size);
                        assertThat(block.mismatch(MemorySegment.ofArray(new byte[(int) size]))).isEqualTo(-1);
                        allocator.free(block);
                    }
                }
            }
        }
    }
}
