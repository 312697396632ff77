package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SegmentPoolTest {
    private static final int MIB = 1 << 20;

    @ParameterizedTest
    @ValueSource(ints = {64 << 10, MIB, 2 * MIB, 3 * MIB})
    void segmentsAreAlignedDisjointAndNumbered(int size) {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(64 * MIB).only(Backing.base()))) {
            // Makes the remaining memory start unaligned.
            arena.allocate(100);
            SegmentPool pool = SegmentPool.of(arena, size, 2);
            assertThat(pool.count()).isEqualTo((int) (pool.memory().byteSize() / size)).isGreaterThanOrEqualTo(64 * MIB / size - 2);
            for (int expected = 0; expected < pool.count(); expected++) {
                assertThat(pool.free()).isEqualTo(pool.count() - expected);
                assertThat(pool.acquire()).isEqualTo(expected);
                assertThat(pool.segment(expected).address() % Integer.lowestOneBit(size)).isZero();
                assertThat(pool.segment(expected).byteSize()).isEqualTo(size);
                pool.segment(expected).fill((byte) expected);
            }
            assertThat(pool.tryAcquire()).isEqualTo(-1);
            assertThatThrownBy(pool::acquire).isInstanceOfSatisfying(
                    MemoryExhaustedException.class, full -> assertThat(full.requested()).isEqualTo(size));
            for (int segment = 0; segment < pool.count(); segment++) {
                byte content = (byte) segment;
                assertThat(pool.segment(segment).elements(JAVA_BYTE).allMatch(of -> of.get(JAVA_BYTE, 0) == content)).isTrue();
            }
            pool.release(7);
            pool.release(3);
            assertThatThrownBy(() -> pool.release(3)).isInstanceOf(IllegalStateException.class);
            assertThat(List.of(pool.acquire(), pool.acquire())).containsExactlyInAnyOrder(3, 7);
        }
    }

    @Test
    void fieldsBelongToOneSegmentAndAreChangedAtomically() throws Exception {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(8 * MIB).only(Backing.base()))) {
            SegmentPool pool = SegmentPool.of(arena, MIB, 2);
            pool.setField(1, 1, 5);
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                threads.add(Thread.ofPlatform().start(() -> {
                    for (int n = 0; n < 10_000; n++) {
                        pool.addToField(2, 0, 1);
                    }
                }));
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertThat(pool.field(2, 0)).isEqualTo(40_000);
            assertThat(pool.compareAndSetField(1, 1, 4, 6)).isFalse();
            assertThat(pool.compareAndSetField(1, 1, 5, 6)).isTrue();
            assertThat(pool.field(1, 1)).isEqualTo(6);
            assertThat(pool.field(1, 0) + pool.field(2, 1) + pool.field(0, 1)).isZero();
            for (int[] wrong : new int[][] {{-1, 0}, {pool.count(), 0}, {0, -1}, {0, 2}}) {
                assertThatThrownBy(() -> pool.field(wrong[0], wrong[1])).isInstanceOf(IndexOutOfBoundsException.class);
            }
            assertThatThrownBy(() -> pool.segment(pool.count())).isInstanceOf(IndexOutOfBoundsException.class);
        }
    }

    @Test
    void otherSizesAndTooLittleMemoryAreRefused() {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(MIB).only(Backing.base()))) {
            assertThatThrownBy(() -> SegmentPool.of(arena, 1000, 0)).isInstanceOf(IllegalArgumentException.class);
            assertThatThrownBy(() -> SegmentPool.of(arena, MIB, -1)).isInstanceOf(IllegalArgumentException.class);
            assertThatThrownBy(() -> SegmentPool.of(arena, 2 * MIB, 0)).isInstanceOf(IllegalArgumentException.class);
        }
    }
}
