package io.hugewise.races;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;

import io.hugewise.memory.Backing;
import io.hugewise.memory.Coverage;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/// An arena is closed while others use it: they succeed, or get an exception, and never crash.
final class Close {
    private Close() {}

    private abstract static class Opened {
        final HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(1 << 16).only(Backing.base()));
        final HugeAllocator allocator = HugeAllocator.of(arena);

        /// 1 if the arena was closed here, 0 if another thread accessed it at that moment.
        int close() {
            try {
                arena.close();
                return 1;
            } catch (IllegalStateException _) {
                return 0;
            }
        }
    }

    /// A thread allocates, writes and frees.
    @JCStressTest
    @Outcome(id = {"1, 1", "1, 0", "0, 1"}, expect = ACCEPTABLE, desc = "used before, or refused")
    @State
    public static class WhileAllocated extends Opened {
        @Actor
        public void one(II_Result result) {
            result.r1 = close();
        }

        @Actor
        public void two(II_Result result) {
            try {
                MemorySegment block = allocator.allocate(64);
                block.set(ValueLayout.JAVA_LONG, 0, 42);
                result.r2 = block.get(ValueLayout.JAVA_LONG, 0) == 42 ? 1 : 2;
                allocator.free(block);
            } catch (IllegalStateException _) {
                result.r2 = result.r2 == 2 ? 2 : 0;
            }
        }
    }

    /// A thread reads the coverage.
    @JCStressTest
    @Outcome(id = {"1, 1", "1, 0", "0, 1"}, expect = ACCEPTABLE, desc = "read before, or refused")
    @State
    public static class WhileCoverageIsRead extends Opened {
        @Actor
        public void one(II_Result result) {
            result.r1 = close();
        }

        @Actor
        public void two(II_Result result) {
            try {
                result.r2 = arena.coverage() instanceof Coverage.Known ? 1 : 2;
            } catch (IllegalStateException _) {
                result.r2 = 0;
            }
        }
    }

    /// Two threads close it.
    @JCStressTest
    @Outcome(id = "1, 1", expect = ACCEPTABLE, desc = "the second close is without effect")
    @State
    public static class Twice extends Opened {
        @Actor
        public void one(II_Result result) {
            result.r1 = close();
        }

        @Actor
        public void two(II_Result result) {
            result.r2 = close();
        }
    }
}
