import com.sun.net.httpserver.HttpServer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * Fills its heap, and swaps numbers all over it with one thread, with pauses that leave the CPU to others: LiveLoad MIB.
 *
 * The swaps are counted at http://127.0.0.1:PORT/metrics; the port is printed after `filled`. For each line of
 * standard input, and at its end, it prints whether the sum of all numbers is right.
 */
public class LiveLoad {
    private static final int NUMBERS = 8192;
    private static volatile boolean over;

    public static void main(String[] arguments) throws Exception {
        int arrays = Integer.parseInt(arguments[0]) * 16;
        long[][] all = new long[arrays][];
        for (int i = 0; i < arrays; i++) {
            all[i] = new long[NUMBERS];
            for (int j = 0; j < NUMBERS; j++) {
                all[i][j] = (long) i * NUMBERS + j;
            }
        }
        AtomicLong swaps = new AtomicLong();
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/metrics", exchange -> {
            byte[] text = ("# TYPE swaps_total counter\nswaps_total " + swaps.get() + "\n").getBytes();
            exchange.sendResponseHeaders(200, text.length);
            exchange.getResponseBody().write(text);
            exchange.close();
        });
        server.start();
        Thread worker = new Thread(() -> work(all, swaps));
        worker.start();
        System.out.println("filled " + server.getAddress().getPort());
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            System.out.println(checked(all, swaps));
        }
        over = true;
        worker.join();
        server.stop(0);
        System.out.println(checked(all, swaps));
    }

    private static String checked(long[][] all, AtomicLong swaps) {
        long sum = 0;
        synchronized (all) {
            for (long[] array : all) {
                for (long number : array) {
                    sum += number;
                }
            }
        }
        long count = (long) all.length * NUMBERS;
        boolean right = sum == count * (count - 1) / 2 && swaps.get() > 0;
        return (right ? "right" : "wrong") + " after " + swaps.get() + " swaps";
    }

    private static void work(long[][] all, AtomicLong swaps) {
        long random = 1;
        while (!over) {
            synchronized (all) {
                for (int n = 0; n < 1000; n++) {
                    random = random * 6364136223846793005L + 1442695040888963407L;
                    long[] one = all[(int) ((random >>> 33) % all.length)];
                    int here = (int) ((random >>> 12) & (NUMBERS - 1));
                    random = random * 6364136223846793005L + 1442695040888963407L;
                    long[] other = all[(int) ((random >>> 33) % all.length)];
                    int there = (int) ((random >>> 12) & (NUMBERS - 1));
                    long kept = one[here];
                    one[here] = other[there];
                    other[there] = kept;
                }
            }
            swaps.addAndGet(1000);
            LockSupport.parkNanos(2_000_000);
        }
    }
}
