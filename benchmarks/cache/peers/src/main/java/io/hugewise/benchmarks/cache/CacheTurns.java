package io.hugewise.benchmarks.cache;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/// A cache that takes turns with others, each in its own JVM. It adds all entries and prints `ready`. A line on standard
/// input is `WORKLOAD MILLISECONDS`, answered by `NANOSECONDS OPERATIONS MISSES` (nanoseconds per operation of a
/// thread; a miss is a missing key, or a read of a file), or `verify`, which reads all keys and compares every byte,
/// answered by `FOUND MISSING WRONG`.
///
/// Workloads: `zipf`, 95 % reads and 5 % writes with a zipf exponent of 0.99; `zipf-reads`, only reads; `uniform`, reads;
/// `puts`, uniform puts. A key that is missed is added.
///
/// Arguments: name of the cache (see [Caches]), number of entries, number of threads.
public final class CacheTurns {
    private static final int BATCH = 500;
    /// One of so many operations of `zipf` writes.
    private static final int WRITES = 20;
    static final Values VALUES = new Values(128, 1024);

    private final Cached cache;
    private final int entries;
    private final int threads;
    private final ExecutorService pool;
    private final List<Worker> workers = new ArrayList<>();

    private CacheTurns(Cached cache, int entries, int threads) {
        this.cache = cache;
        this.entries = entries;
        this.threads = threads;
        // Of daemons: the process ends with a failure of the main thread.
        this.pool = Executors.newFixedThreadPool(threads, Thread.ofPlatform().daemon().factory());
        for (int i = 0; i < threads; i++) {
            workers.add(new Worker(new Keys(entries, i)));
        }
    }

    public static void main(String[] arguments) throws IOException, InterruptedException, ExecutionException {
        PrintStream answers = System.out;
        // Some libraries print to it.
        System.setOut(System.err);
        int entries = Integer.parseInt(arguments[1]);
        var turns = new CacheTurns(Caches.named(arguments[0], entries, VALUES.meanSize()), entries, Integer.parseInt(arguments[2]));
        if (!arguments[0].startsWith("records:")) {
            turns.all(turns::load);
        }
        answers.println("ready");
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            answers.println(words[0].equals("verify") ? turns.verified() : turns.turn(words[0], Long.parseLong(words[1]) * 1_000_000));
        }
        System.exit(0);
    }

    private interface Task<T> {
        T run(int thread) throws Exception;
    }

    private <T> List<T> all(Task<T> task) throws InterruptedException, ExecutionException {
        List<Future<T>> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int thread = i;
            Callable<T> call = () -> task.run(thread);
            running.add(pool.submit(call));
        }
        List<T> results = new ArrayList<>();
        for (Future<T> one : running) {
            results.add(one.get());
        }
        return results;
    }

    private Void load(int thread) {
        for (int number = thread; number < entries; number += threads) {
            cache.put(Key.of(number), VALUES.value(number, 0));
        }
        return null;
    }

    private String verified() throws InterruptedException, ExecutionException {
        long[] sums = new long[3];
        for (long[] counts : all(this::verify)) {
            for (int i = 0; i < sums.length; i++) {
                sums[i] += counts[i];
            }
        }
        return "%d %d %d".formatted(sums[0], sums[1], sums[2]);
    }

    private long[] verify(int thread) {
        long[] counts = new long[3];
        for (int number = thread; number < entries; number += threads) {
            byte[] value = cache.get(Key.of(number));
            counts[value == null ? 1 : VALUES.isOf(value, number) ? 0 : 2]++;
        }
        return counts;
    }

    private String turn(String workload, long lasting) throws InterruptedException, ExecutionException {
        long reads = cache.fileReads();
        long operations = 0;
        long misses = 0;
        double nanos = 0;
        for (long[] of : all(i -> workers.get(i).turn(workload, lasting))) {
            nanos += (double) of[0] / of[1] / threads;
            operations += of[1];
            misses += of[2];
        }
        return "%s %d %d".formatted(nanos, operations, misses + cache.fileReads() - reads);
    }

    /// The work of one thread.
    private final class Worker {
        private final Keys keys;
        private long version;
        private long misses;
        private long sum;

        Worker(Keys keys) {
            this.keys = keys;
        }

        long[] turn(String workload, long lasting) {
            Runnable batch = switch (workload) {
                case "zipf" -> this::mixed;
                case "zipf-reads" -> this::zipf;
                case "uniform" -> this::uniform;
                case "puts" -> this::puts;
                default -> throw new IllegalArgumentException("no workload is named " + workload);
            };
            misses = 0;
            long operations = 0;
            long begin = System.nanoTime();
            long now = begin;
            while (now - begin < lasting) {
                batch.run();
                operations += BATCH;
                now = System.nanoTime();
            }
            // Never true, but the compiler cannot know: keeps the reads alive.
            if (sum == 42) {
                System.err.println(sum);
            }
            return new long[] {now - begin, operations, misses};
        }

        private void mixed() {
            for (int i = 0; i < BATCH; i++) {
                int number = keys.zipf();
                if (i % WRITES == 0) {
                    cache.put(Key.of(number), VALUES.value(number, ++version));
                } else {
                    read(number);
                }
            }
        }

        private void zipf() {
            for (int i = 0; i < BATCH; i++) {
                read(keys.zipf());
            }
        }

        private void uniform() {
            for (int i = 0; i < BATCH; i++) {
                read(keys.uniform());
            }
        }

        private void puts() {
            for (int i = 0; i < BATCH; i++) {
                int number = keys.uniform();
                cache.put(Key.of(number), VALUES.value(number, ++version));
            }
        }

        private void read(int number) {
            byte[] value = cache.get(Key.of(number));
            if (value == null) {
                misses++;
                cache.put(Key.of(number), VALUES.value(number, 0));
            } else {
                sum += value[0] + value[value.length - 1];
            }
        }
    }
}
