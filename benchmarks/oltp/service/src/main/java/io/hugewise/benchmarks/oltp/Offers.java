package io.hugewise.benchmarks.oltp;

import java.util.HashMap;
import java.util.Map;

/// The catalogue of the shop, on the heap: offers of sellers by number.
final class Offers {
    /// Heap that an offer takes with its entry of the map.
    private static final int OFFER_BYTES = 416;
    private static final int TEXT_CHARACTERS = 200;
    static final int PRODUCTS = 100_000;

    record Offer(int number, int product, long cents, String title, String text) {}

    private final Map<Integer, Offer> offers;

    Offers(long bytes) {
        int count = Math.toIntExact(bytes / OFFER_BYTES);
        offers = new HashMap<>(2 * count);
        for (int number = 0; number < count; number++) {
            int product = 1 + number % PRODUCTS;
            String title = "product " + product + " of seller " + number / PRODUCTS;
            offers.put(number, new Offer(number, product, 100 + Math.floorMod(number * 2_654_435_761L, 9_900), title, text(number)));
        }
    }

    private static String text(int number) {
        return (number + " ").repeat(1 + TEXT_CHARACTERS / 7);
    }

    int count() {
        return offers.size();
    }

    Offer get(int number) {
        return offers.get(number);
    }
}
