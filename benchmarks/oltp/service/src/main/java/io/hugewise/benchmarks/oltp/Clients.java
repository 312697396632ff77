package io.hugewise.benchmarks.oltp;

import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/// Closed-loop clients: each sends its next request when it has the answer to the one before. Prints `ready`. A line on
/// standard input is `PORT DATABASE TRANSACTIONS SEED`, answered by `NANOSECONDS FAILED BUCKET:COUNT …`: the duration, the
/// failed requests, and the latencies of the others, a bucket being 32 times the binary logarithm of nanoseconds.
///
/// Argument: number of clients.
public final class Clients {
    private static final int BUCKETS_PER_OCTAVE = 32;
    private static final int BUCKETS = 64 * BUCKETS_PER_OCTAVE;
    /// Kinds of transactions, and the percentage up to which each is chosen.
    private static final String[] KINDS = {"order", "payment", "status", "delivery", "stock"};
    private static final int[] UP_TO = {45, 88, 92, 96, 100};

    private record Counts(long failed, int[] latencies) {}

    /// A client with a connection to each service.
    private static final class Client {
        private final Map<Integer, Socket> sockets = new HashMap<>();

        Counts run(int port, String database, int transactions, long seed) throws IOException {
            Socket socket = sockets.get(port);
            if (socket == null) {
                socket = new Socket(InetAddress.getLoopbackAddress(), port);
                socket.setTcpNoDelay(true);
                sockets.put(port, socket);
            }
            InputStream input = new BufferedInputStream(socket.getInputStream());
            var random = new SplittableRandom(seed);
            int[] latencies = new int[BUCKETS];
            long failed = 0;
            for (int i = 0; i < transactions; i++) {
                long begin = System.nanoTime();
                String request = "GET /" + database + "/" + kind(random) + "/" + random.nextLong() + " HTTP/1.1\r\nHost: shop\r\n\r\n";
                socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
                boolean good = isGood(input);
                long took = System.nanoTime() - begin;
                if (good) {
                    latencies[(int) (BUCKETS_PER_OCTAVE * Math.log(took) / Math.log(2))]++;
                } else {
                    failed++;
                }
            }
            return new Counts(failed, latencies);
        }

        private static String kind(SplittableRandom random) {
            int percent = random.nextInt(100);
            int kind = 0;
            while (percent >= UP_TO[kind]) {
                kind++;
            }
            return KINDS[kind];
        }

        private static boolean isGood(InputStream input) throws IOException {
            boolean good = line(input).startsWith("HTTP/1.1 200");
            int length = 0;
            for (String header = line(input); !header.isEmpty(); header = line(input)) {
                if (header.regionMatches(true, 0, "content-length:", 0, 15)) {
                    length = Integer.parseInt(header.substring(15).strip());
                }
            }
            input.skipNBytes(length);
            return good;
        }

        private static String line(InputStream input) throws IOException {
            var line = new StringBuilder();
            for (int c = input.read(); c != '\n'; c = input.read()) {
                if (c < 0) {
                    throw new IOException("the service closed the connection");
                }
                if (c != '\r') {
                    line.append((char) c);
                }
            }
            return line.toString();
        }
    }

    public static void main(String[] arguments) throws IOException, InterruptedException, ExecutionException {
        int count = Integer.parseInt(arguments[0]);
        // Daemons, so that the process ends if a service does.
        ExecutorService pool = Executors.newFixedThreadPool(count, task -> {
            var thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        List<Client> clients = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            clients.add(new Client());
        }
        System.out.println("ready");
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            long begin = System.nanoTime();
            List<Future<Counts>> running = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                Client client = clients.get(i);
                long seed = Long.parseLong(words[3]) + i;
                running.add(pool.submit(() -> client.run(Integer.parseInt(words[0]), words[1], Integer.parseInt(words[2]) / count, seed)));
            }
            long failed = 0;
            int[] latencies = new int[BUCKETS];
            for (Future<Counts> one : running) {
                failed += one.get().failed;
                for (int i = 0; i < BUCKETS; i++) {
                    latencies[i] += one.get().latencies[i];
                }
            }
            var answer = new StringBuilder().append(System.nanoTime() - begin).append(' ').append(failed);
            for (int i = 0; i < BUCKETS; i++) {
                if (latencies[i] > 0) {
                    answer.append(' ').append(i).append(':').append(latencies[i]);
                }
            }
            System.out.println(answer);
        }
        System.exit(0);
    }
}
