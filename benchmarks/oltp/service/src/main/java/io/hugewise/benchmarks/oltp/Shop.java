package io.hugewise.benchmarks.oltp;

import io.hugewise.benchmarks.oltp.Offers.Offer;
import io.hugewise.benchmarks.oltp.Sessions.Line;
import io.hugewise.benchmarks.oltp.Sessions.Session;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.SplittableRandom;

/// Answers a request: reads sessions and offers on the heap, then runs one transaction on the database. The seed of a
/// request determines all that it reads.
final class Shop {
    static final int DISTRICTS = 10;
    static final int CUSTOMERS = 3000;
    /// Offers that are compared for each line of an order.
    private static final int OFFERS_OF_LINE = 8;
    /// Offers on the page of any other request.
    private static final int OFFERS_OF_PAGE = 40;

    private final int warehouses;
    private final Offers offers;
    private final Sessions sessions;

    Shop(int warehouses, Offers offers, Sessions sessions) {
        this.warehouses = warehouses;
        this.offers = offers;
        this.sessions = sessions;
    }

    String answer(Transactions on, String kind, long seed) throws SQLException {
        var random = new SplittableRandom(seed);
        Session session = sessions.get(random.nextInt(sessions.count()));
        int w = 1 + random.nextInt(warehouses);
        int d = 1 + random.nextInt(DISTRICTS);
        var page = new StringBuilder(2048);
        if (kind.equals("order")) {
            List<Line> lines = chosen(random, session, page);
            int order = on.order(w, d, session.customer, lines);
            session.replaceCart(lines);
            return page.append("order ").append(order).append('\n').toString();
        }
        for (int i = 0; i < OFFERS_OF_PAGE; i++) {
            show(offers.get(random.nextInt(offers.count())), session, page);
        }
        page.append("last seen ").append(offers.get(session.lastSeen()).title()).append('\n');
        int result = switch (kind) {
            case "payment" -> on.payment(w, d, session.customer, 100 + random.nextInt(500_000));
            case "status" -> on.status(w, d, session.customer);
            case "delivery" -> on.delivery(w);
            case "stock" -> on.stock(w, d, 60 + random.nextInt(11));
            default -> throw new IllegalArgumentException("unknown transaction " + kind);
        };
        return page.append(kind).append(' ').append(result).append('\n').toString();
    }

    /// 5 to 15 lines of different products, each the cheapest of some offers, in order of products so that
    /// transactions lock rows in one order.
    private List<Line> chosen(SplittableRandom random, Session session, StringBuilder page) {
        int count = 5 + random.nextInt(11);
        List<Line> lines = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            Offer cheapest = offers.get(random.nextInt(offers.count()));
            for (int n = 1; n < OFFERS_OF_LINE; n++) {
                Offer other = offers.get(random.nextInt(offers.count()));
                cheapest = other.cents() < cheapest.cents() ? other : cheapest;
            }
            int product = cheapest.product();
            if (lines.stream().noneMatch(line -> line.product() == product)) {
                show(cheapest, session, page);
                lines.add(new Line(product, 1 + random.nextInt(10), cheapest.cents()));
            }
        }
        lines.sort(Comparator.comparingInt(Line::product));
        return lines;
    }

    private static void show(Offer offer, Session session, StringBuilder page) {
        session.see(offer.number());
        page.append(offer.title()).append(": ").append(offer.cents()).append(' ').append(offer.text(), 0, 16).append('\n');
    }
}
