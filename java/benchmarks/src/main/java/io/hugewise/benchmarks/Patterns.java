package io.hugewise.benchmarks;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.IntFunction;

/// Patterns of allocation and free that take turns with other allocators, each in its own JVM.
///
/// Prints `ready`. Each line on standard input is `PATTERN SIZE THREADS MS`: it runs for that time and prints
/// nanoseconds per pair of an allocation and a free. THREADS is a number, or `virtual`: as many threads as CPUs, which
/// run each 1000 pairs in a new virtual thread.
///
/// The allocator is the property `allocator`; the argument is the size of its memory.
public final class Patterns {
    private static final int PAIRS = 1000;
    private static final int BATCH = 50;
    private static final int MIXED = -1;
    private static final int LARGEST_LOG2 = 16;
    /// Most bytes of live blocks of all threads.
    private static final long MOST_LIVE = 640L << 20;

    private Patterns() {}

    public static void main(String[] arguments) throws IOException, InterruptedException, ExecutionException {
        IntFunction<Blocks> allocator = Blocks.of(System.getProperty("allocator"), Long.parseLong(arguments[0]));
        allocator.apply(1);
        System.out.println("ready");
        var turns = new BufferedReader(new InputStreamReader(System.in));
        String before = "";
        List<Work> works = List.of();
        for (String line = turns.readLine(); line != null; line = turns.readLine()) {
            String[] words = line.split(" ");
            String cell = String.join(" ", words[0], words[1], words[2]);
            if (!cell.equals(before)) {
                for (Work work : works) {
                    work.end();
                }
                works = works(allocator, words[0], Integer.parseInt(words[1]), words[2]);
                before = cell;
            }
            System.out.println(run(works, words[2].equals("virtual"), Long.parseLong(words[3]) * 1_000_000));
        }
        System.exit(0);
    }

    private static List<Work> works(IntFunction<Blocks> allocator, String pattern, int size, String threads)
            throws InterruptedException, ExecutionException {
        int count = threads.equals("virtual") ? Runtime.getRuntime().availableProcessors() : Integer.parseInt(threads);
        var full = new ConcurrentLinkedQueue<Blocks>();
        var empty = new ConcurrentLinkedQueue<Blocks>();
        List<Work> works = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Work work = work(allocator, pattern, size, count, full, empty);
            works.add(work);
            try (ExecutorService thread = Executors.newSingleThreadExecutor()) {
                thread.submit(() -> {
                            work.begin();
                            return null;
                        })
                        .get();
            }
        }
        return works;
    }

    private static Work work(
            IntFunction<Blocks> allocator, String pattern, int size, int threads,
            ConcurrentLinkedQueue<Blocks> full, ConcurrentLinkedQueue<Blocks> empty) {
        int some = size <= 1024 ? 1000 : 100;
        return switch (pattern) {
            case "lifo" -> new Lifo(allocator.apply(1), size);
            case "burst" -> new Burst(allocator.apply(some), size, some);
            case "fifo" -> new Live(allocator.apply(some), size, some, false);
            case "random" -> {
                int live = (int) Math.min(10_000, MOST_LIVE / threads / (size == MIXED ? 8192 : size));
                yield new Live(allocator.apply(live), size, live, true);
            }
            case "large" -> new Live(allocator.apply(10_000_000 / threads), size, 10_000_000 / threads, true);
            case "cross" -> new Cross(allocator, size, full, empty);
            default -> throw new IllegalArgumentException("no pattern: " + pattern);
        };
    }

    /// Runs all threads; returns the mean of their nanoseconds per pair.
    private static double run(List<Work> works, boolean isVirtual, long lasting) throws InterruptedException, ExecutionException {
        double sum = 0;
        try (ExecutorService threads = Executors.newFixedThreadPool(works.size())) {
            List<Future<Double>> took = new ArrayList<>();
            for (Work work : works) {
                took.add(threads.submit(() -> turn(work, isVirtual, lasting)));
            }
            for (Future<Double> one : took) {
                sum += one.get();
            }
        }
        return sum / works.size();
    }

    private static double turn(Work work, boolean isVirtual, long lasting) throws InterruptedException {
        long before = work.done;
        long begin = System.nanoTime();
        long now = begin;
        while (now - begin < lasting) {
            if (isVirtual) {
                Thread.ofVirtual().start(work).join();
            } else {
                work.run();
            }
            now = System.nanoTime();
        }
        return (double) (now - begin) / Math.max(1, work.done - before);
    }

    /// A pattern of one thread.
    private abstract static class Work implements Runnable {
        static final int OLDEST = Blocks.PADDING;
        private static final int ORDER = OLDEST + 1;

        final int size;
        /// What changes with each pair, apart from that of other threads.
        final int[] state = new int[2 * Blocks.PADDING];
        private long done;

        Work(int size) {
            this.size = size;
            state[ORDER] = 1;
        }

        /// Some pairs; returns how many.
        abstract int pairs() throws Throwable;

        void begin() {}

        void end() {}

        @Override
        public void run() {
            try {
                done += pairs();
            } catch (Throwable error) {
                throw new IllegalStateException(error);
            }
        }

        int next(int limit) {
            int order = state[ORDER] * 1664525 + 1013904223;
            state[ORDER] = order;
            return (int) ((order >>> 8) * (long) limit >>> 24);
        }

        /// A size: each doubling is as frequent as the others if sizes are mixed.
        int size() {
            if (size != MIXED) {
                return size;
            }
            int log2 = 4 + next(LARGEST_LOG2 - 4);
            return (1 << log2) + next(1 << log2);
        }

        static void all(Blocks blocks, int count, boolean free, Work of) {
            try {
                for (int i = 0; i < count; i++) {
                    if (free) {
                        blocks.free(i);
                    } else {
                        blocks.allocate(i, of.size());
                    }
                }
            } catch (Throwable error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /// Frees each block before it allocates the next one.
    private static final class Lifo extends Work {
        private final Blocks blocks;

        Lifo(Blocks blocks, int size) {
            super(size);
            this.blocks = blocks;
        }

        @Override
        int pairs() throws Throwable {
            for (int i = 0; i < PAIRS; i++) {
                blocks.allocate(0, size);
                blocks.free(0);
            }
            return PAIRS;
        }
    }

    /// Allocates some blocks, and then frees them in the same order.
    private static final class Burst extends Work {
        private final Blocks blocks;
        private final int count;

        Burst(Blocks blocks, int size, int count) {
            super(size);
            this.blocks = blocks;
            this.count = count;
        }

        @Override
        int pairs() throws Throwable {
            for (int done = 0; done < PAIRS; done += count) {
                for (int i = 0; i < count; i++) {
                    blocks.allocate(i, size);
                }
                for (int i = 0; i < count; i++) {
                    blocks.free(i);
                }
            }
            return PAIRS;
        }
    }

    /// Replaces the oldest of its live blocks, or a random one.
    private static final class Live extends Work {
        private final Blocks blocks;
        private final int count;
        private final boolean isRandom;

        Live(Blocks blocks, int size, int count, boolean isRandom) {
            super(size);
            this.blocks = blocks;
            this.count = count;
            this.isRandom = isRandom;
        }

        @Override
        void begin() {
            all(blocks, count, false, this);
        }

        @Override
        void end() {
            all(blocks, count, true, this);
        }

        @Override
        int pairs() throws Throwable {
            for (int i = 0; i < PAIRS; i++) {
                int oldest = state[OLDEST];
                int index = isRandom ? next(count) : oldest;
                blocks.free(index);
                blocks.allocate(index, size());
                state[OLDEST] = oldest + 1 == count ? 0 : oldest + 1;
            }
            return PAIRS;
        }
    }

    /// Allocates batches of blocks, and frees those of other threads.
    private static final class Cross extends Work {
        private final IntFunction<Blocks> allocator;
        private final ConcurrentLinkedQueue<Blocks> full;
        private final ConcurrentLinkedQueue<Blocks> empty;

        Cross(IntFunction<Blocks> allocator, int size, ConcurrentLinkedQueue<Blocks> full, ConcurrentLinkedQueue<Blocks> empty) {
            super(size);
            this.allocator = allocator;
            this.full = full;
            this.empty = empty;
        }

        @Override
        void begin() {
            for (int i = 0; i < 2; i++) {
                Blocks batch = allocator.apply(BATCH);
                all(batch, BATCH, false, this);
                full.add(batch);
                empty.add(allocator.apply(BATCH));
            }
        }

        @Override
        void end() {
            for (Blocks batch = full.poll(); batch != null; batch = full.poll()) {
                all(batch, BATCH, true, this);
            }
        }

        @Override
        int pairs() {
            int freed = 0;
            for (int done = 0; done < PAIRS; done += BATCH) {
                Blocks mine = empty.poll();
                Blocks theirs = full.poll();
                if (mine != null) {
                    all(mine, BATCH, false, this);
                    full.add(mine);
                }
                if (theirs != null) {
                    all(theirs, BATCH, true, this);
                    empty.add(theirs);
                    freed += BATCH;
                }
            }
            return freed;
        }
    }
}
