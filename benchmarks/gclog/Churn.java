/** Allocates short- and long-lived garbage for a number of milliseconds: young, full, and with G1 concurrent collections. */
public class Churn {
    public static void main(String[] arguments) {
        long until = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000L;
        Object[] kept = new Object[400];
        java.util.Random random = new java.util.Random(1);
        for (int i = 1; System.nanoTime() < until; i++) {
            byte[] piece = new byte[random.nextInt(64 << 10)];
            if (i % 4 == 0) kept[random.nextInt(kept.length)] = piece;
            if (i % 2000 == 0) kept[random.nextInt(kept.length)] = new byte[2 << 20];
            if (i % 3000 == 0) System.gc();
        }
    }
}
