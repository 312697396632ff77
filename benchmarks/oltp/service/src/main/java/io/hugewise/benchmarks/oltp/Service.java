package io.hugewise.benchmarks.oltp;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.util.Arrays;
import java.util.concurrent.Executors;

/// An HTTP service on databases: `GET /DATABASE/KIND/SEED` runs one transaction. Prints its port when it is ready, and
/// ends with its standard input.
///
/// Arguments: number of warehouses, number of threads, URL of each database.
public final class Service {
    /// Shares of the heap that the offers and the sessions take.
    private static final double OFFERS_RATIO = 0.25;
    private static final double SESSIONS_RATIO = 0.15;

    private final Shop shop;
    private final ThreadLocal<Transactions>[] databases;

    @SuppressWarnings({"unchecked", "rawtypes"})
    private Service(Shop shop, String[] urls) {
        this.shop = shop;
        databases = new ThreadLocal[urls.length];
        for (int i = 0; i < urls.length; i++) {
            String url = urls[i];
            databases[i] = ThreadLocal.withInitial(() -> connected(url));
        }
    }

    public static void main(String[] arguments) throws IOException {
        int warehouses = Integer.parseInt(arguments[0]);
        int threads = Integer.parseInt(arguments[1]);
        String[] urls = Arrays.copyOfRange(arguments, 2, arguments.length);
        long heap = Runtime.getRuntime().maxMemory();
        var shop = new Shop(warehouses, new Offers((long) (OFFERS_RATIO * heap)), new Sessions((long) (SESSIONS_RATIO * heap)));
        // Young collections promote what was filled; a full one leaves all processes with the same heap.
        System.gc();
        var service = new Service(shop, urls);
        var server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(Executors.newFixedThreadPool(threads));
        server.createContext("/", service::handle);
        server.start();
        System.out.println(server.getAddress().getPort());
        System.in.transferTo(OutputStream.nullOutputStream());
        System.exit(0);
    }

    private static Transactions connected(String url) {
        try {
            return new Transactions(url);
        } catch (SQLException failed) {
            throw new IllegalStateException(failed);
        }
    }

    private void handle(HttpExchange exchange) throws IOException {
        String[] words = exchange.getRequestURI().getPath().split("/");
        int status = 200;
        String answer;
        try {
            answer = shop.answer(databases[Integer.parseInt(words[1])].get(), words[2], Long.parseLong(words[3]));
        } catch (SQLException | RuntimeException failed) {
            System.err.println(failed);
            status = 500;
            answer = failed.toString();
        }
        byte[] body = answer.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, body.length);
        try (var output = exchange.getResponseBody()) {
            output.write(body);
        }
    }
}
