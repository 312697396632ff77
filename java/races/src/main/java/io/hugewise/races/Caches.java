package io.hugewise.races;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;

import io.hugewise.cache.HugeCache;
import io.hugewise.cache.Serializers;
import io.hugewise.memory.Backing;
import java.util.concurrent.atomic.AtomicLong;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.III_Result;
import org.openjdk.jcstress.infra.results.I_Result;
import org.openjdk.jcstress.infra.results.II_Result;

/// Threads that change and read the entry of one key agree on an order. The cache is full, so that entries are also
/// evicted: a value may be missing, but never be an older one.
final class Caches {
    private static final AtomicLong KEYS = new AtomicLong();
    private static final HugeCache<Long, Integer> CACHE = HugeCache.builder(Serializers.longs(), Serializers.ints())
            .maximumBytes(16 << 20).heapEntries(1 << 14).memory(options -> options.only(Backing.base())).build();

    private Caches() {}

    /// A key of its own for each run.
    private abstract static class Key {
        final long key = KEYS.incrementAndGet();

        void put(int value) {
            CACHE.put(key, value);
        }

        /// The value; 0 if there is none.
        int get() {
            Integer value = CACHE.getIfPresent(key);
            return value == null ? 0 : value;
        }
    }

    /// A thread reads a value twice while another one replaces it, which the heap has.
    @JCStressTest
    @Outcome(id = {"1, 1", "1, 2", "2, 2"}, expect = ACCEPTABLE, desc = "in order")
    @Outcome(id = {"0, 0", "0, 2", "1, 0", "2, 0"}, expect = ACCEPTABLE, desc = "evicted")
    @State
    public static class ReadWhileReplaced extends Key {
        public ReadWhileReplaced() {
            put(1);
            get();
            get();
        }

        @Actor
        public void one() {
            put(2);
        }

        @Actor
        public void two(II_Result result) {
            result.r1 = get();
            result.r2 = get();
        }
    }

    /// Both threads read while a value gets to the heap and is removed.
    @JCStressTest
    @Outcome(id = {"1, 1", "1, 0", "0, 0"}, expect = ACCEPTABLE, desc = "in order")
    @State
    public static class ReadWhileRemoved extends Key {
        public ReadWhileRemoved() {
            put(1);
            get();
        }

        @Actor
        public void one() {
            CACHE.invalidate(key);
        }

        @Actor
        public void two(II_Result result) {
            result.r1 = get();
            result.r2 = get();
        }
    }

    /// After both have put a value, all read the same one.
    @JCStressTest
    @Outcome(id = {"1, 1, 1", "2, 2, 2", "1, 2, 1", "1, 2, 2"}, expect = ACCEPTABLE, desc = "in order")
    @Outcome(id = {"1, 1, 0", "2, 2, 0", "1, 2, 0", "0, 1, 0", "0, 2, 0", "1, 0, 0", "2, 0, 0", "0, 0, 0", "0, 2, 2", "1, 0, 1"},
            expect = ACCEPTABLE, desc = "evicted")
    @State
    public static class BothPut extends Key {
        @Actor
        public void one(III_Result result) {
            put(1);
            result.r1 = get();
        }

        @Actor
        public void two(III_Result result) {
            put(2);
            result.r2 = get();
        }

        @Arbiter
        public void after(III_Result result) {
            result.r3 = get();
        }
    }

    /// One of two threads adds a value, and the other one gets it.
    @JCStressTest
    @Outcome(id = {"0, 1", "2, 0"}, expect = ACCEPTABLE, desc = "one of both")
    @Outcome(id = "0, 0", expect = ACCEPTABLE, desc = "evicted between")
    @State
    public static class BothPutIfAbsent extends Key {
        @Actor
        public void one(II_Result result) {
            result.r1 = putIfAbsent(1);
        }

        @Actor
        public void two(II_Result result) {
            result.r2 = putIfAbsent(2);
        }

        private int putIfAbsent(int value) {
            Integer before = CACHE.putIfAbsent(key, value);
            return before == null ? 0 : before;
        }
    }

    /// A replacement of a value happens once.
    @JCStressTest
    @Outcome(id = {"1, 0", "0, 1"}, expect = ACCEPTABLE, desc = "one of both")
    @Outcome(id = "0, 0", expect = ACCEPTABLE, desc = "evicted before")
    @State
    public static class BothReplace extends Key {
        public BothReplace() {
            put(1);
        }

        @Actor
        public void one(II_Result result) {
            result.r1 = CACHE.asMap().replace(key, 1, 2) ? 1 : 0;
        }

        @Actor
        public void two(II_Result result) {
            result.r2 = CACHE.asMap().replace(key, 1, 3) ? 1 : 0;
        }
    }

    /// A cache with room for all entries, of which none is evicted, and a key of its own for each run, which is removed after
    /// it.
    private abstract static class Kept {
        private static final HugeCache<Long, Integer> ROOMY = HugeCache.builder(Serializers.longs(), Serializers.ints())
                .maximumBytes(256 << 20).heapEntries(1 << 12).memory(options -> options.only(Backing.base())).build();
        final HugeCache<Long, Integer> cache = ROOMY;
        final long key = KEYS.incrementAndGet();

        int removed() {
            return number(cache.asMap().remove(key));
        }

        static int number(Integer value) {
            return value == null ? 0 : value;
        }
    }

    /// No call of a function is lost.
    @JCStressTest
    @Outcome(id = "2", expect = ACCEPTABLE, desc = "both")
    @State
    public static class BothCompute extends Kept {
        @Actor
        public void one() {
            cache.asMap().merge(key, 1, Integer::sum);
        }

        @Actor
        public void two() {
            cache.asMap().merge(key, 1, Integer::sum);
        }

        @Arbiter
        public void after(I_Result result) {
            result.r1 = removed();
        }
    }

    /// A removal is before or after a function.
    @JCStressTest
    @Outcome(id = "2, 2, 0", expect = ACCEPTABLE, desc = "removed after the function")
    @Outcome(id = "10, 1, 10", expect = ACCEPTABLE, desc = "removed before it")
    @State
    public static class ComputeWhileRemoved extends Kept {
        public ComputeWhileRemoved() {
            cache.put(key, 1);
        }

        @Actor
        public void one(III_Result result) {
            result.r1 = cache.asMap().compute(key, (_, present) -> present == null ? 10 : present + 1);
        }

        @Actor
        public void two(III_Result result) {
            result.r2 = removed();
        }

        @Arbiter
        public void after(III_Result result) {
            result.r3 = removed();
        }
    }

    /// A value that is loaded stays only if the key is not written during that time.
    @JCStressTest
    @Outcome(id = "1, 1, 1", expect = ACCEPTABLE, desc = "loaded before")
    @Outcome(id = {"2, 0, 2", "1, 0, 2"}, expect = ACCEPTABLE, desc = "put before, or during the load")
    @State
    public static class LoadWhilePutIfAbsent extends Kept {
        @Actor
        public void one(III_Result result) {
            result.r1 = cache.get(key, _ -> 1);
        }

        @Actor
        public void two(III_Result result) {
            result.r2 = number(cache.putIfAbsent(key, 2));
        }

        @Arbiter
        public void after(III_Result result) {
            result.r3 = removed();
        }
    }

    /// A load that begins after an invalidation has the new value, and the old one does not stay.
    @JCStressTest
    @Outcome(id = {"1, 2, 2", "2, 2, 2"}, expect = ACCEPTABLE, desc = "the new value after the invalidation")
    @State
    public static class LoadWhileInvalidated extends Kept {
        private volatile int row = 1;

        @Actor
        public void one(III_Result result) {
            result.r1 = cache.get(key, _ -> row);
        }

        @Actor
        public void two(III_Result result) {
            row = 2;
            cache.invalidate(key);
            result.r2 = cache.get(key, _ -> row);
        }

        @Arbiter
        public void after(III_Result result) {
            result.r3 = removed();
        }
    }
}
