package io.hugewise.benchmarks.oltp;

import io.hugewise.benchmarks.oltp.Sessions.Line;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// The transactions of the shop, on one connection of one thread.
final class Transactions {
    private final Connection connection;
    private final Map<String, PreparedStatement> statements = new HashMap<>();

    Transactions(String url) throws SQLException {
        connection = DriverManager.getConnection(url);
        connection.setAutoCommit(false);
    }

    /// Returns the number of the new order.
    int order(int w, int d, int customer, List<Line> lines) throws SQLException {
        return inTransaction(() -> {
            number("select c.payments from customer c join warehouse using (w) where w = ? and d = ? and c = ?", w, d, customer);
            int order = number("update district set next_order = next_order + 1 where w = ? and d = ? returning next_order - 1", w, d);
            update("insert into orders values (?, ?, ?, ?, now(), ?, false)", w, d, order, customer, lines.size());
            update("insert into new_order values (?, ?, ?)", w, d, order);
            PreparedStatement insert = statement("insert into order_line values (?, ?, ?, ?, ?, ?, ? / 100.0, ?)");
            for (int n = 0; n < lines.size(); n++) {
                Line line = lines.get(n);
                number("update stock set quantity = case when quantity >= ? + 10 then quantity - ? else quantity - ? + 91 end, sold = sold + ?, "
                    + "orders = orders + 1 where w = ? and p = ? returning quantity",
                    line.quantity(), line.quantity(), line.quantity(), line.quantity(), w, line.product());
                set(insert, w, d, order, n, line.product(), line.quantity(), (int) (line.quantity() * line.cents()));
                insert.setString(8, "line of an order of shop");
                insert.addBatch();
            }
            insert.executeBatch();
            return order;
        });
    }

    /// Returns the number of the customer's payments.
    int payment(int w, int d, int customer, int cents) throws SQLException {
        return inTransaction(() -> {
            number("update warehouse set paid = paid + ? / 100.0 where w = ? returning w", cents, w);
            number("update district set paid = paid + ? / 100.0 where w = ? and d = ? returning d", cents, w, d);
            int payments = number("update customer set balance = balance - ? / 100.0, payments = payments + 1 where w = ? and d = ? and c = ? "
                + "returning payments", cents, w, d, customer);
            update("insert into history values (?, ?, ?, ? / 100.0)", w, d, customer, cents);
            return payments;
        });
    }

    /// Returns the number of pieces in the customer's last order; 0 without one.
    int status(int w, int d, int customer) throws SQLException {
        return inTransaction(() -> {
            number("select payments from customer where w = ? and d = ? and c = ?", w, d, customer);
            return number("select coalesce(sum(quantity), 0)::int from order_line where w = ? and d = ? and o = "
                + "(select max(o) from orders where w = ? and d = ? and c = ?)", w, d, w, d, customer);
        });
    }

    /// Delivers the oldest new order of each district; returns the number of delivered orders.
    int delivery(int w) throws SQLException {
        return inTransaction(() -> {
            int delivered = 0;
            for (int d = 1; d <= Shop.DISTRICTS; d++) {
                int order = number("delete from new_order where w = ? and d = ? and o = (select o from new_order where w = ? and d = ? "
                    + "order by o limit 1 for update skip locked) returning o", w, d, w, d);
                if (order > 0) {
                    int customer = number("update orders set delivered = true where w = ? and d = ? and o = ? returning c", w, d, order);
                    update("update customer set balance = balance + (select sum(amount) from order_line where w = ? and d = ? and o = ?) "
                        + "where w = ? and d = ? and c = ?", w, d, order, w, d, customer);
                    delivered++;
                }
            }
            return delivered;
        });
    }

    /// Returns the number of products of the last 20 orders whose stock is below a limit.
    int stock(int w, int d, int limit) throws SQLException {
        return inTransaction(() -> number("select count(distinct l.p)::int from district join order_line l using (w, d) join stock s using (w, p) "
            + "where w = ? and d = ? and l.o >= next_order - 20 and s.quantity < ?", w, d, limit));
    }

    private interface Work {
        int run() throws SQLException;
    }

    private int inTransaction(Work work) throws SQLException {
        try {
            int result = work.run();
            connection.commit();
            return result;
        } catch (SQLException failed) {
            connection.rollback();
            throw failed;
        }
    }

    /// The first column of the first row; 0 without a row.
    private int number(String sql, int... values) throws SQLException {
        PreparedStatement statement = statement(sql);
        set(statement, values);
        try (ResultSet rows = statement.executeQuery()) {
            return rows.next() ? rows.getInt(1) : 0;
        }
    }

    private void update(String sql, int... values) throws SQLException {
        PreparedStatement statement = statement(sql);
        set(statement, values);
        statement.executeUpdate();
    }

    private PreparedStatement statement(String sql) throws SQLException {
        PreparedStatement known = statements.get(sql);
        if (known == null) {
            known = connection.prepareStatement(sql);
            statements.put(sql, known);
        }
        return known;
    }

    private static void set(PreparedStatement statement, int... values) throws SQLException {
        for (int i = 0; i < values.length; i++) {
            statement.setInt(i + 1, values[i]);
        }
    }
}
