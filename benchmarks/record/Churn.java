/** Replaces live arrays of 64 KiB in a heap, so many times: little work, and much garbage. */
public class Churn {
    static final byte[][] KEPT = new byte[1500][];

    public static void main(String[] arguments) {
        long rounds = Long.parseLong(arguments[0]);
        for (long round = 0; round < rounds; round++) {
            KEPT[(int) (round % KEPT.length)] = new byte[1 << 16];
        }
    }
}
