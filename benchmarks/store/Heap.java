import com.sun.management.ThreadMXBean;
import io.hugewise.cache.HugeCache;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;

/// `PATTERN BYTES SECONDS SEED`: reads of a cache with and without values on the heap, in turns.
final class Heap {
    private static final int TURN = 100_000;
    private static final int THREADS = 2;

    public static void main(String[] arguments) throws InterruptedException {
        boolean isZipf = arguments[0].equals("zipf");
        long bytes = Long.parseLong(arguments[1]);
        double seconds = Double.parseDouble(arguments[2]);
        var order = new SplittableRandom(Long.parseLong(arguments[3]));
        int keys = (int) (bytes / 700);
        try (var without = Load.builder(bytes).build(); var with = Load.builder(bytes).heapEntries(10_000).build()) {
            for (long key = 0; key < keys; key++) {
                without.put(key, Load.value(key, 0));
                with.put(key, Load.value(key, 0));
            }
            int[][] requests = new int[THREADS][];
            for (int thread = 0; thread < THREADS; thread++) {
                requests[thread] = requests(keys, isZipf, order.split());
            }
            List<HugeCache<Long, Load.Value>> caches = new ArrayList<>(List.of(without, with));
            double[][] times = {new double[10_000], new double[10_000]};
            int turns = 0;
            // A third of the time compiles, and fills the heap.
            for (long begin = System.nanoTime(); turns < 10_000 && System.nanoTime() - begin < seconds * 1e9; ) {
                boolean counts = System.nanoTime() - begin > seconds * 1e9 / 3;
                int first = order.nextInt(2);
                for (int i = 0; i < 2; i++) {
                    int which = first ^ i;
                    times[which][turns] = turn(caches.get(which), requests, order.nextInt(requests[0].length));
                }
                turns += counts ? 1 : 0;
            }
            if (without.stats().misses() + with.stats().misses() + with.stats().evictions() > 0) {
                throw new AssertionError("entries are missing");
            }
            Load.print(Map.of("without", median(times[0], turns), "with", median(times[1], turns), "turns", turns,
                    "heap_hit_ratio", (double) with.heapStats().hits() / with.stats().hits(), "heap_entries", with.heapStats().entries()));
        }
    }

    private static double median(double[] times, int count) {
        double[] sorted = Arrays.copyOf(times, count);
        Arrays.sort(sorted);
        return sorted[count / 2];
    }

    /// CPU time of a read, in seconds.
    private static double turn(HugeCache<Long, Load.Value> cache, int[][] requests, int from) throws InterruptedException {
        long[] nanos = new long[THREADS];
        List<Thread> threads = new ArrayList<>();
        for (int thread = 0; thread < THREADS; thread++) {
            int number = thread;
            threads.add(Thread.ofPlatform().start(() -> nanos[number] = read(cache, requests[number], from)));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return Arrays.stream(nanos).sum() / 1e9 / THREADS / TURN;
    }

    private static long read(HugeCache<Long, Load.Value> cache, int[] requests, int from) {
        var clock = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long begin = clock.getCurrentThreadCpuTime();
        long wrong = 0;
        for (int i = 0; i < TURN; i++) {
            long key = requests[from + i & requests.length - 1];
            Load.Value value = cache.getIfPresent(key);
            wrong += value != null && value.isOf(key) ? 0 : 1;
        }
        if (wrong > 0) {
            throw new AssertionError(wrong + " values are wrong");
        }
        return clock.getCurrentThreadCpuTime() - begin;
    }

    private static int[] requests(int keys, boolean isZipf, SplittableRandom random) {
        double[] cumulated = new double[keys];
        double sum = 0;
        for (int i = 0; i < keys; i++) {
            sum += isZipf ? Math.pow(i + 1, -0.99) : 1;
            cumulated[i] = sum;
        }
        int[] requests = new int[1 << 22];
        for (int i = 0; i < requests.length; i++) {
            int found = Arrays.binarySearch(cumulated, random.nextDouble() * sum);
            int rank = Math.min(keys - 1, found < 0 ? -found - 1 : found);
            // Popular keys are not neighbours.
            requests[i] = (int) ((rank * 7919L) % keys);
        }
        return requests;
    }
}
