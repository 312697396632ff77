import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Arrays;

/**
 * Random one-byte reads of a byte[]: the same generator and loop as Hugewise's native workload.
 *
 * <p>Usage: {@code java Touch BYTES READS ITERATIONS}, or {@code java Touch BYTES READS turns}. Prints
 * the mean time of a read in the median iteration. In turns, each line of the input is {@code READS
 * UNCOUNTED}, and is answered with the mean time of a read in nanoseconds.
 */
public final class Touch {
    /** Reads per call: small, so that the loop is compiled as a method and not by on-stack replacement. */
    private static final int CHUNK = 100_000;

    private final byte[] buffer;
    private long state = 0x9E3779B97F4A7C15L;
    /** Keeps the compiler from removing the reads. */
    private long checksum;

    private Touch(int bytes) {
        buffer = new byte[bytes];
        for (int i = 0; i < bytes; i++) {
            buffer[i] = (byte) i;
        }
    }

    private long readRandomly(int reads) {
        byte[] bytes = buffer;
        long length = bytes.length;
        long x = state;
        long sum = 0;
        for (int i = 0; i < reads; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
            // Upper half of the unsigned product of x and length.
            long place = Math.multiplyHigh(x, length) + ((x >> 63) & length);
            sum += bytes[(int) place] & 0xFF;
        }
        state = x;
        return sum;
    }

    private long read(long reads) {
        long sum = 0;
        for (long left = reads; left > 0; left -= CHUNK) {
            sum += readRandomly((int) Math.min(left, CHUNK));
        }
        return sum;
    }

    /** Mean time of a read, in nanoseconds. */
    private double time(long reads) {
        long begin = System.nanoTime();
        checksum += read(reads);
        return (System.nanoTime() - begin) / (double) reads;
    }

    private double[] takeTurns() throws IOException {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        double[] times = new double[0];
        System.out.println("ready");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] command = line.split(" ");
            checksum += read(Long.parseLong(command[1]));
            times = Arrays.copyOf(times, times.length + 1);
            times[times.length - 1] = time(Long.parseLong(command[0]));
            System.out.println(times[times.length - 1]);
        }
        return times;
    }

    public static void main(String[] arguments) throws IOException {
        long reads = Long.parseLong(arguments[1]);
        Touch touch = new Touch(Integer.parseInt(arguments[0]));
        touch.checksum += touch.read(Math.max(reads, 100L * CHUNK)); // Warm-up.
        double[] times;
        if (arguments[2].equals("turns")) {
            times = touch.takeTurns();
        } else {
            times = new double[Integer.parseInt(arguments[2])];
            for (int i = 0; i < times.length; i++) {
                times[i] = touch.time(reads);
            }
        }
        Arrays.sort(times);
        int count = times.length;
        double median = count == 0 ? 0 : (times[count / 2] + times[(count - 1) / 2]) / 2;
        System.out.println("ns/op: " + median);
        System.out.println("checksum: " + touch.checksum);
    }
}
