package io.hugewise.races;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;
import org.openjdk.jcstress.infra.results.III_Result;

/// Two threads free the same block: one succeeds, the other gets an exception.
final class DoubleFree {
    private DoubleFree() {}

    /// A slot, which is freed into the cell of its word, or into the word.
    @JCStressTest
    @Outcome(id = {"1, 0", "0, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @State
    public static class OfSlot {
        private final long block = Memory.allocate(64);

        @Actor
        public void one(II_Result result) {
            result.r1 = Memory.free(block);
        }

        @Actor
        public void two(II_Result result) {
            result.r2 = Memory.free(block);
        }
    }

    /// A slot of which cells hold only a few.
    @JCStressTest
    @Outcome(id = {"1, 0", "0, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @State
    public static class OfLargeSlot {
        private final long block = Memory.allocate(10_000);

        @Actor
        public void one(II_Result result) {
            result.r1 = Memory.free(block);
        }

        @Actor
        public void two(II_Result result) {
            result.r2 = Memory.free(block);
        }
    }

    /// A run of units.
    @JCStressTest
    @Outcome(id = {"1, 0", "0, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @State
    public static class OfRun {
        private final long block = Memory.allocate(16_384);

        @Actor
        public void one(II_Result result) {
            result.r1 = Memory.free(block);
        }

        @Actor
        public void two(II_Result result) {
            result.r2 = Memory.free(block);
        }
    }

    /// A block that is larger than all classes.
    @JCStressTest
    @Outcome(id = {"1, 0", "0, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @State
    public static class OfLargeBlock {
        private final long block = Memory.allocate(70_000);

        @Actor
        public void one(II_Result result) {
            result.r1 = Memory.free(block);
        }

        @Actor
        public void two(II_Result result) {
            result.r2 = Memory.free(block);
        }
    }

    /// The second thread allocates blocks of the size before, and may get the block that the first one freed. Without
    /// other states in the same memory, whose blocks it would get.
    @JCStressTest
    @Outcome(id = {"1, 0, 0", "0, 0, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @Outcome(id = "1, 1, 1", expect = ACCEPTABLE, desc = "freed, allocated again, and freed by its new owner")
    @State
    public static class WhileAllocated {
        /// More than the slots that a cell holds.
        private static final int SOME = 40;

        private final HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(1 << 16).only(Backing.base()));
        private final HugeAllocator allocator = HugeAllocator.of(arena);
        private final long block = allocator.allocateOffset(64);

        @Actor
        public void one(III_Result result) {
            result.r1 = Memory.free(allocator, block);
        }

        @Actor
        public void two(III_Result result) {
            for (int i = 0; i < SOME; i++) {
                result.r2 |= allocator.allocateOffset(64) == block ? 1 : 0;
            }
            result.r3 = Memory.free(allocator, block);
        }

        @Arbiter
        public void close() {
            arena.close();
        }
    }

    /// The second thread takes the free blocks of all cells back before, and ends spans.
    @JCStressTest
    @Outcome(id = {"1, 0", "0, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @State
    public static class WhileTrimmed {
        private final long block = Memory.allocate(64);

        @Actor
        public void one(II_Result result) {
            result.r1 = Memory.free(block);
        }

        @Actor
        public void two(II_Result result) {
            Memory.ALLOCATOR.trim();
            result.r2 = Memory.free(block);
        }
    }
}
