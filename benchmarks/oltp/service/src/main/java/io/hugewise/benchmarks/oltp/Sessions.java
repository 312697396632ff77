package io.hugewise.benchmarks.oltp;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/// The sessions of the shop's customers, on the heap: each request replaces the cart of one.
final class Sessions {
    /// Heap that a session takes with its entry of the map and its cart.
    private static final int SESSION_BYTES = 720;
    private static final int SEEN = 64;

    record Line(int product, int quantity, long cents) {}

    static final class Session {
        final int customer;
        private final int[] seen = new int[SEEN];
        private int next;
        private List<Line> cart;

        Session(int customer) {
            this.customer = customer;
            this.cart = List.of(new Line(1, 1, 100), new Line(2, 1, 100), new Line(3, 1, 100), new Line(4, 1, 100), new Line(5, 1, 100));
        }

        synchronized void see(int offer) {
            seen[next++ % SEEN] = offer;
        }

        synchronized int lastSeen() {
            return seen[(next + SEEN - 1) % SEEN];
        }

        synchronized List<Line> replaceCart(List<Line> lines) {
            List<Line> before = cart;
            cart = lines;
            return before;
        }
    }

    private final Map<Integer, Session> sessions;

    Sessions(long bytes) {
        int count = Math.toIntExact(bytes / SESSION_BYTES);
        sessions = new ConcurrentHashMap<>(count);
        for (int number = 0; number < count; number++) {
            sessions.put(number, new Session(1 + number % Shop.CUSTOMERS));
        }
    }

    int count() {
        return sessions.size();
    }

    Session get(int number) {
        return sessions.get(number);
    }
}
