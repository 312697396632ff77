import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;

/**
 * Replaces live arrays of 64 KiB in a heap until it is ended: much garbage. After every so many it prints the
 * monotonic clock, and the CPU time of the process with its GC threads: both in ns.
 */
public class Churn {
    static final byte[][] KEPT = new byte[1500][];

    public static void main(String[] arguments) {
        int arrays = Integer.parseInt(arguments[0]);
        var process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        for (long made = 1;; made++) {
            KEPT[(int) (made % KEPT.length)] = new byte[1 << 16];
            if (made % arrays == 0) {
                System.out.println(System.nanoTime() + " " + process.getProcessCpuTime());
            }
        }
    }
}
