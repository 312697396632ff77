package io.hugewise.races;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;
import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE_INTERESTING;

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

/// Two threads free the same block: one succeeds, the other gets an exception. Only if a thread frees a slot of its own
/// cache at this moment, both may succeed; then the slot is free once.
final class DoubleFree {
    private DoubleFree() {}

    /// A slot in memory of its own, whose other blocks no other state takes.
    private abstract static class Alone {
        final HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(1 << 16).only(Backing.base()));
        final HugeAllocator allocator = HugeAllocator.of(arena);
        final long block = allocator.allocateOffset(64);
    }

    /// A slot, which is freed into the cache that owns its word, or into the shared half of the word.
    @JCStressTest
    @Outcome(id = {"1, 0", "0, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @Outcome(id = "1, 1", expect = ACCEPTABLE_INTERESTING, desc = "not detected: freed at the same moment, once by its owner")
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

    /// A slot of which caches hold only a few.
    @JCStressTest
    @Outcome(id = {"1, 0", "0, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @Outcome(id = "1, 1", expect = ACCEPTABLE_INTERESTING, desc = "not detected: freed at the same moment, once by its owner")
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

    /// Also where both frees succeed, the slot is allocated once afterwards.
    @JCStressTest
    @Outcome(id = {"1, 0, 1", "0, 1, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @Outcome(id = "1, 1, 1", expect = ACCEPTABLE_INTERESTING, desc = "not detected, and free once")
    @State
    public static class AndAllocated extends Alone {
        @Actor
        public void one(III_Result result) {
            result.r1 = Memory.free(allocator, block);
        }

        @Actor
        public void two(III_Result result) {
            result.r2 = Memory.free(allocator, block);
        }

        @Arbiter
        public void allocate(III_Result result) {
            for (long offset; (offset = allocator.tryAllocateOffset(64)) >= 0; ) {
                result.r3 += offset == block ? 1 : 0;
            }
            arena.close();
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

    /// The second thread allocates blocks of the size before, and may get the block that the first one freed.
    @JCStressTest
    @Outcome(id = {"1, 0, 0", "0, 0, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @Outcome(id = "1, 1, 1", expect = ACCEPTABLE, desc = "freed, allocated again, and freed by its new owner")
    @Outcome(id = "1, 0, 1", expect = ACCEPTABLE_INTERESTING, desc = "not detected: freed at the same moment")
    @State
    public static class WhileAllocated extends Alone {
        /// More than the slots of a word.
        private static final int SOME = 40;

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

    /// The second thread takes the free blocks of all caches back before, and ends spans.
    @JCStressTest
    @Outcome(id = {"1, 0", "0, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @Outcome(id = "1, 1", expect = ACCEPTABLE_INTERESTING, desc = "not detected: freed at the same moment, once by its owner")
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
