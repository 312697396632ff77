/**
 * Replaces live trees of 2047 small objects until it is killed: much garbage, and live objects to mark and copy.
 * After each number of trees given as argument, prints the monotonic clock in ns.
 */
public class Churn {
    static final Tree[] KEPT = new Tree[500];
    static final int DEPTH = 10;

    record Tree(Tree left, Tree right, long value) {}

    static Tree tree(int depth) {
        return depth < 0 ? null : new Tree(tree(depth - 1), tree(depth - 1), depth);
    }

    public static void main(String[] arguments) {
        int trees = Integer.parseInt(arguments[0]);
        for (long made = 1;; made++) {
            KEPT[(int) (made % KEPT.length)] = tree(DEPTH);
            if (made % trees == 0) {
                System.out.println(System.nanoTime());
            }
        }
    }
}
