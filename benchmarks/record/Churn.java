import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.List;

/**
 * Replaces live trees of 2047 small objects until it is killed: much garbage, and live objects to mark and copy.
 * After each collection prints the monotonic clock and the CPU time of the process, in ns, and the number of trees.
 */
public class Churn {
    static final Tree[] KEPT = new Tree[500];
    static final int DEPTH = 10;
    /** Trees between two looks at the number of collections. */
    static final int TREES = 10;

    record Tree(Tree left, Tree right, long value) {}

    static Tree tree(int depth) {
        return depth < 0 ? null : new Tree(tree(depth - 1), tree(depth - 1), depth);
    }

    public static void main(String[] arguments) {
        List<GarbageCollectorMXBean> collectors = ManagementFactory.getGarbageCollectorMXBeans();
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long collections = 0;
        for (long made = 1;; made++) {
            KEPT[(int) (made % KEPT.length)] = tree(DEPTH);
            if (made % TREES == 0) {
                long now = 0;
                for (GarbageCollectorMXBean collector : collectors) {
                    now += collector.getCollectionCount();
                }
                if (now != collections) {
                    collections = now;
                    System.out.println(System.nanoTime() + " " + system.getProcessCpuTime() + " " + made);
                }
            }
        }
    }
}
