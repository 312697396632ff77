import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.List;

/**
 * Computes, and replaces live trees of 2047 small objects, until it is killed: about 20 collections per second, with live
 * objects to mark and copy. After each collection prints the monotonic clock in ns and the number of
 * trees.
 */
public class Churn {
    static final Tree[] KEPT = new Tree[20];
    static final int DEPTH = 10;
    /** Trees between two looks at the number of collections. */
    static final int TREES = 10;
    /** Steps of the computation for each tree: about a tenth of a millisecond. */
    static final int STEPS = 50_000;

    record Tree(Tree left, Tree right, long value) {}

    static Tree tree(int depth) {
        return depth < 0 ? null : new Tree(tree(depth - 1), tree(depth - 1), depth);
    }

    /** A random number after some steps of xorshift: needs no memory. */
    static long random(long seed) {
        long random = seed;
        for (int step = 0; step < STEPS; step++) {
            random ^= random << 13;
            random ^= random >>> 7;
            random ^= random << 17;
        }
        return random;
    }

    public static void main(String[] arguments) {
        List<GarbageCollectorMXBean> collectors = ManagementFactory.getGarbageCollectorMXBeans();
        long collections = 0;
        long random = 1;
        for (long made = 1;; made++) {
            KEPT[(int) (made % KEPT.length)] = tree(DEPTH);
            random = random(random);
            if (made % TREES == 0) {
                long now = 0;
                for (GarbageCollectorMXBean collector : collectors) {
                    now += collector.getCollectionCount();
                }
                if (now != collections && random != 0) {
                    collections = now;
                    System.out.println(System.nanoTime() + " " + made);
                }
            }
        }
    }
}
