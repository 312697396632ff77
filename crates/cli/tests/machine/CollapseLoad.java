import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Fills its heap, and swaps numbers in it with several threads: CollapseLoad MIB THREADS.
 *
 * Each thread swaps numbers of its own part, so that their sum does not change. For each line on standard
 * input it prints the longest iteration since the previous line, in microseconds; at the end of the input it
 * prints whether the sum is right.
 */
public class CollapseLoad {
    private static final int NUMBERS = 8192;
    private static volatile boolean over;

    public static void main(String[] arguments) throws Exception {
        int threads = Integer.parseInt(arguments[1]);
        int arrays = Integer.parseInt(arguments[0]) * 16 / threads;
        long[][][] parts = new long[threads][arrays][];
        for (long[][] part : parts) {
            for (int i = 0; i < arrays; i++) {
                part[i] = new long[NUMBERS];
                for (int j = 0; j < NUMBERS; j++) {
                    part[i][j] = (long) i * NUMBERS + j;
                }
            }
        }
        AtomicLong worst = new AtomicLong();
        AtomicLong iterations = new AtomicLong();
        Thread[] workers = new Thread[threads];
        for (int t = 0; t < threads; t++) {
            long[][] part = parts[t];
            int seed = t + 1;
            workers[t] = new Thread(() -> work(part, seed, worst, iterations));
            workers[t].start();
        }
        System.out.println("filled");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            System.out.println(worst.getAndSet(0) / 1000);
        }
        over = true;
        long sum = 0;
        for (int t = 0; t < threads; t++) {
            workers[t].join();
            for (long[] array : parts[t]) {
                for (long number : array) {
                    sum += number;
                }
            }
        }
        long count = (long) arrays * NUMBERS;
        boolean right = sum == threads * (count * (count - 1) / 2) && iterations.get() > 0;
        System.out.println((right ? "right" : "wrong") + " after " + iterations.get() + " iterations");
    }

    private static void work(long[][] part, long seed, AtomicLong worst, AtomicLong iterations) {
        long random = seed;
        long[] garbage = new long[64];
        while (!over) {
            long begin = System.nanoTime();
            for (int n = 0; n < 1000; n++) {
                random = random * 6364136223846793005L + 1442695040888963407L;
                long[] one = part[(int) ((random >>> 33) % part.length)];
                random = random * 6364136223846793005L + 1442695040888963407L;
                long[] other = part[(int) ((random >>> 33) % part.length)];
                int place = (int) ((random >>> 20) & (NUMBERS - 1));
                long kept = one[place];
                one[place] = other[place];
                other[place] = kept;
            }
            // Some garbage for the collector.
            garbage = new long[64 + (int) (garbage[0] & 1)];
            iterations.incrementAndGet();
            long lasted = System.nanoTime() - begin;
            worst.accumulateAndGet(lasted, Math::max);
        }
    }
}
