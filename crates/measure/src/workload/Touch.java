import java.util.Arrays;

/**
 * Random one-byte reads of a byte[]: the same generator and loop as Hugewise's native workload.
 *
 * <p>Usage: {@code java Touch.java BYTES READS ITERATIONS}. Prints the mean time of a read in the
 * median iteration.
 */
public final class Touch {
    /** Reads per call: small, so that the loop is compiled as a method and not by on-stack replacement. */
    private static final int CHUNK = 100_000;

    private final byte[] buffer;
    private long state = 0x9E3779B97F4A7C15L;

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

    private long iterate(long reads) {
        long sum = 0;
        for (long done = 0; done < reads; done += CHUNK) {
            sum += readRandomly(CHUNK);
        }
        return sum;
    }

    public static void main(String[] arguments) {
        int bytes = Integer.parseInt(arguments[0]);
        long reads = Long.parseLong(arguments[1]);
        int iterations = Integer.parseInt(arguments[2]);
        Touch touch = new Touch(bytes);
        long sum = touch.iterate(Math.max(reads, 100L * CHUNK)); // Warm-up.
        double[] times = new double[iterations];
        for (int i = 0; i < iterations; i++) {
            long begin = System.nanoTime();
            sum += touch.iterate(reads);
            times[i] = (System.nanoTime() - begin) / (double) reads;
        }
        Arrays.sort(times);
        double median = (times[iterations / 2] + times[(iterations - 1) / 2]) / 2;
        System.out.println("ns/op: " + median);
        System.out.println("checksum: " + sum);
    }
}
