/** Replaces live arrays of 64 KiB in a heap, so many times, and prints the seconds: much garbage. */
public class Churn {
    static final byte[][] KEPT = new byte[1500][];

    public static void main(String[] arguments) {
        long rounds = Long.parseLong(arguments[0]);
        long begin = System.nanoTime();
        for (long round = 0; round < rounds; round++) {
            KEPT[(int) (round % KEPT.length)] = new byte[1 << 16];
        }
        System.out.println((System.nanoTime() - begin) / 1e9);
    }
}
