package io.hugewise.races;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.I_Result;

/// Threads that allocate at the same time get different blocks, which can be freed once.
final class Owners {
    private Owners() {}

    /// Of one size; a thread frees a block before, and the other one takes the free blocks of all caches back.
    private abstract static class Two {
        private final long size;
        private final long before;
        private long first;
        private long second;

        Two(long size) {
            this.size = size;
            before = Memory.allocate(size);
        }

        void freeAndAllocate() {
            Memory.ALLOCATOR.freeOffset(before);
            first = Memory.allocate(size);
        }

        void trimAndAllocate() {
            Memory.ALLOCATOR.trim();
            second = Memory.allocate(size);
        }

        int areDifferent() {
            return first != second && Memory.free(first) == 1 && Memory.free(second) == 1 ? 1 : 0;
        }
    }

    /// Slots.
    @JCStressTest
    @Outcome(id = "1", expect = ACCEPTABLE, desc = "both blocks have one owner")
    @State
    public static class OfSlots extends Two {
        public OfSlots() {
            super(64);
        }

        @Actor
        public void one() {
            freeAndAllocate();
        }

        @Actor
        public void two() {
            trimAndAllocate();
        }

        @Arbiter
        public void both(I_Result result) {
            result.r1 = areDifferent();
        }
    }

    /// Runs of units.
    @JCStressTest
    @Outcome(id = "1", expect = ACCEPTABLE, desc = "both blocks have one owner")
    @State
    public static class OfRuns extends Two {
        public OfRuns() {
            super(8192);
        }

        @Actor
        public void one() {
            freeAndAllocate();
        }

        @Actor
        public void two() {
            trimAndAllocate();
        }

        @Arbiter
        public void both(I_Result result) {
            result.r1 = areDifferent();
        }
    }

    /// Blocks that are larger than all classes.
    @JCStressTest
    @Outcome(id = "1", expect = ACCEPTABLE, desc = "both blocks have one owner")
    @State
    public static class OfLargeBlocks extends Two {
        public OfLargeBlocks() {
            super(70_000);
        }

        @Actor
        public void one() {
            freeAndAllocate();
        }

        @Actor
        public void two() {
            trimAndAllocate();
        }

        @Arbiter
        public void both(I_Result result) {
            result.r1 = areDifferent();
        }
    }
}
