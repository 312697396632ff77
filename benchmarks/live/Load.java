import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * Fills its heap, and swaps numbers all over it with one thread. At the end it prints whether their sum is right.
 *
 * <pre>
 * Load MIB                     swaps without a pause, and counts them at the URL that follows `ready`
 * Load MIB seconds S           the same for S seconds, after a warm-up, and prints the rate
 * Load MIB requests LOW HIGH   so many requests per second; the rate changes from one to the other at random times. Each
 *                              request allocates 64 KiB and makes 2000 swaps
 * </pre>
 */
public class Load {
    private static final int NUMBERS = 8192;
    private static final int SWAPS = 2000, ARRAYS = 64;
    private static final long SECOND = 1_000_000_000;
    private static final int WARM_UP_SECONDS = 1;
    /** Bounds of the time between two changes of the rate, in seconds. */
    private static final int MIN_PHASE = 2, MAX_PHASE = 12;

    private static volatile boolean over;
    static volatile byte[] last;

    private final long[][] all;
    private final AtomicLong swaps = new AtomicLong();
    private long random = 1;

    private Load(int mebibytes) {
        all = new long[mebibytes * 16][];
        for (int i = 0; i < all.length; i++) {
            all[i] = new long[NUMBERS];
            for (int j = 0; j < NUMBERS; j++) {
                all[i][j] = (long) i * NUMBERS + j + 1;
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Load load = new Load(Integer.parseInt(arguments[0]));
        String mode = arguments.length > 1 ? arguments[1] : "";
        Thread worker = new Thread(() -> {
            if (mode.equals("requests")) {
                load.requests(Double.parseDouble(arguments[2]), Double.parseDouble(arguments[3]));
            } else {
                while (!over) {
                    load.swap();
                }
            }
        });
        worker.start();
        if (mode.equals("seconds")) {
            Thread.sleep(WARM_UP_SECONDS * 1000);
            long before = load.swaps.get(), begin = System.nanoTime();
            Thread.sleep(Integer.parseInt(arguments[2]) * 1000L);
            System.out.println("swaps/s: " + (load.swaps.get() - before) * SECOND / (System.nanoTime() - begin));
        } else {
            load.serve();
        }
        over = true;
        worker.join();
        if (!load.isRight()) {
            System.out.println("wrong");
            System.exit(1);
        }
        System.out.println("right");
        System.exit(0);
    }

    /** Shows its counter until the end of standard input. */
    private void serve() throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/metrics", exchange -> {
            byte[] text = ("# TYPE swaps_total counter\nswaps_total " + swaps.get() + "\n").getBytes();
            exchange.sendResponseHeaders(200, text.length);
            exchange.getResponseBody().write(text);
            exchange.close();
        });
        server.start();
        System.out.println("ready http://127.0.0.1:" + server.getAddress().getPort() + "/metrics");
        while (System.in.read() >= 0) {
            continue;
        }
    }

    private void requests(double low, double high) {
        Random phases = new Random(1);
        long next = System.nanoTime(), change = next;
        double rate = high;
        while (!over) {
            if (next >= change) {
                rate = rate == low ? high : low;
                change += SECOND * (MIN_PHASE + phases.nextInt(MAX_PHASE - MIN_PHASE));
            }
            LockSupport.parkNanos(next - System.nanoTime());
            for (int n = 0; n < ARRAYS; n++) {
                last = new byte[1008];
            }
            swap();
            next += (long) (SECOND / rate);
        }
    }

    private void swap() {
        for (int n = 0; n < SWAPS; n++) {
            long[] one = all[next()], other = all[next()];
            int here = (int) (random >>> 12) & (NUMBERS - 1), there = (int) (random >>> 40) & (NUMBERS - 1);
            long kept = one[here];
            one[here] = other[there];
            other[there] = kept;
        }
        swaps.addAndGet(SWAPS);
    }

    private int next() {
        random = random * 6364136223846793005L + 1442695040888963407L;
        return (int) ((random >>> 33) % all.length);
    }

    private boolean isRight() {
        long sum = 0;
        for (long[] array : all) {
            for (long number : array) {
                sum += number;
            }
        }
        long count = (long) all.length * NUMBERS;
        return sum == count * (count + 1) / 2 && swaps.get() > 0;
    }
}
