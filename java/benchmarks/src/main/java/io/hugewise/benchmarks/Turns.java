package io.hugewise.benchmarks;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/// A benchmark that takes turns with others, each in its own JVM. It prepares its memory and prints `ready`. Each
/// line on standard input is a duration in milliseconds: it runs for that time and prints nanoseconds per
/// operation.
///
/// Disturbances on a shared machine affect all of them alike, so fewer runs give a precise ratio than with
/// separate runs.
///
/// Arguments: `read`, the memory of [SegmentTouch], number of threads.
public final class Turns {
    private Turns() {}

    /// A batch of operations.
    private interface Work {
        long some() throws Throwable;
    }

    public static void main(String[] arguments) throws IOException, InterruptedException, ExecutionException {
        String method = arguments[0];
        String parameter = arguments[1];
        List<ExecutorService> threads = new ArrayList<>();
        List<Work> works = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(arguments[2]); i++) {
            ExecutorService thread = Executors.newSingleThreadExecutor();
            threads.add(thread);
            works.add(thread.submit(() -> work(method, parameter)).get());
        }
        System.out.println("ready");
        var turns = new BufferedReader(new InputStreamReader(System.in));
        for (String line = turns.readLine(); line != null; line = turns.readLine()) {
            long lasting = Long.parseLong(line) * 1_000_000;
            List<Future<Double>> took = new ArrayList<>();
            for (int i = 0; i < threads.size(); i++) {
                took.add(threads.get(i).submit(turn(works.get(i), lasting)));
            }
            double sum = 0;
            for (Future<Double> one : took) {
                sum += one.get();
            }
            System.out.println(sum / took.size());
        }
        System.exit(0);
    }

    private static Callable<Double> turn(Work work, long lasting) {
        return () -> {
            try {
                long sum = 0;
                long operations = 0;
                long begin = System.nanoTime();
                long now = begin;
                while (now - begin < lasting) {
                    sum += work.some();
                    operations += SegmentTouch.READS;
                    now = System.nanoTime();
                }
                // Never true, but the compiler cannot know: keeps the reads alive.
                if (sum == 42) {
                    System.err.println(sum);
                }
                return (double) (now - begin) / operations;
            } catch (Throwable error) {
                throw new IllegalStateException(error);
            }
        };
    }

    private static Work work(String method, String parameter) {
        if (!method.equals("read")) {
            throw new IllegalArgumentException("no benchmark takes turns as " + method);
        }
        var touch = new SegmentTouch();
        touch.memory = parameter;
        touch.bytes = 2L << 30;
        touch.setup();
        return touch::read;
    }
}
