package io.hugewise.services;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.hugewise.cache.CacheWriter.Change;
import io.hugewise.cache.HugeCache;
import io.hugewise.cache.Serializers;
import io.hugewise.cache.UnwrittenException;
import io.hugewise.cache.WriteBack;
import io.hugewise.memory.Backing;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/// A service in small: virtual threads read and change rows of a database through a cache with write-back, while entries
/// expire, the limit changes, and the database is stopped and started. `-Dhugewise.soak=SECONDS` sets its length.
@Timeout(value = 6, unit = TimeUnit.HOURS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SoakTest {
    private static final long SECONDS = Long.getLong("hugewise.soak", 0);
    private static final int THREADS = Integer.getInteger("hugewise.soak.threads", 10_000);
    private static final int KEYS_OF_THREAD = 20;
    private static final long LIMIT = 64 << 20;
    private static final int CONNECTIONS = 8;
    private static final Duration PATIENCE = Duration.ofMinutes(10);
    /// Largest growth of the process' memory from the second quarter to the end.
    private static final double GROWTH = 1.25;

    private final Queue<Throwable> failures = new ConcurrentLinkedQueue<>();
    private final AtomicLong operations = new AtomicLong();
    private final AtomicLong unavailable = new AtomicLong();
    private final AtomicLong stops = new AtomicLong();
    private volatile boolean isEnding;

    // --- The database ------------------------------------------------------------------------------

    private interface Query<R> {
        R of(Connection connection) throws SQLException;
    }

    /// Connections, which are made anew after a failure.
    private static final class Rows {
        private final Postgres postgres;
        private final BlockingQueue<List<Connection>> pool = new ArrayBlockingQueue<>(CONNECTIONS);
        /// The writer does not wait for readers.
        private final BlockingQueue<List<Connection>> writing = new ArrayBlockingQueue<>(1);

        Rows(Postgres postgres) throws SQLException {
            this.postgres = postgres;
            for (int i = 0; i < CONNECTIONS; i++) {
                pool.add(new ArrayList<>());
            }
            writing.add(new ArrayList<>());
            query(pool, connection -> connection.createStatement().executeUpdate("create table rows (key bigint primary key, value bytea not null)"));
        }

        private <R> R query(BlockingQueue<List<Connection>> from, Query<R> query) throws SQLException {
            List<Connection> place;
            try {
                place = from.take();
            } catch (InterruptedException error) {
                throw new SQLException(error);
            }
            try {
                if (place.isEmpty()) {
                    place.add(postgres.connect());
                }
                return query.of(place.getFirst());
            } catch (SQLException error) {
                if (!place.isEmpty()) {
                    place.removeFirst().close();
                }
                throw error;
            } finally {
                from.add(place);
            }
        }

        <R> R query(Query<R> query) throws SQLException {
            return query(pool, query);
        }

        void write(Iterable<Change<Long, byte[]>> changes) throws SQLException {
            query(writing, connection -> {
                connection.setAutoCommit(false);
                try (var put = connection.prepareStatement("insert into rows values (?, ?) on conflict (key) do update set value = excluded.value");
                        var remove = connection.prepareStatement("delete from rows where key = ?")) {
                    for (Change<Long, byte[]> change : changes) {
                        var statement = change.isRemoval() ? remove : put;
                        statement.setLong(1, change.key());
                        if (!change.isRemoval()) {
                            statement.setBytes(2, change.value());
                        }
                        statement.addBatch();
                    }
                    put.executeBatch();
                    remove.executeBatch();
                    connection.commit();
                    return true;
                }
            });
        }

        byte @Nullable [] read(long key) throws SQLException {
            return query(connection -> {
                try (var select = connection.prepareStatement("select value from rows where key = ?")) {
                    select.setLong(1, key);
                    var found = select.executeQuery();
                    return found.next() ? found.getBytes(1) : null;
                }
            });
        }
    }

    // --- Values ------------------------------------------------------------------------------------

    /// Key, version, and bytes that follow from them.
    private static byte[] value(long key, long version) {
        byte[] value = new byte[16 + (int) ((key * 31 + version * 17) % 1000)];
        Arrays.fill(value, (byte) (key + version));
        ByteBuffer.wrap(value).putLong(0, key).putLong(8, version);
        return value;
    }

    private static void isIntact(long key, byte[] value) {
        assertThat(value).isEqualTo(value(key, ByteBuffer.wrap(value).getLong(8)));
    }

    // --- Threads -----------------------------------------------------------------------------------

    /// Changes keys that no other thread changes, so that it knows each newest version; 0 if there is none.
    private final class User implements Runnable {
        private final HugeCache<Long, byte[]> cache;
        private final long first;
        final long[] versions = new long[KEYS_OF_THREAD];
        private final SplittableRandom random;

        User(HugeCache<Long, byte[]> cache, int number) {
            this.cache = cache;
            this.first = (long) number * KEYS_OF_THREAD;
            this.random = new SplittableRandom(number);
        }

        @Override
        public void run() {
            for (long version = 1; !isEnding && failures.size() < 10; version++) {
                try {
                    use(random.nextInt(KEYS_OF_THREAD), version);
                    operations.incrementAndGet();
                    Thread.sleep(random.nextInt(1000, 3000));
                } catch (CompletionException error) {
                    if (!(error.getCause() instanceof SQLException)) {
                        failures.add(error);
                    }
                    unavailable.incrementAndGet();
                } catch (UnwrittenException error) {
                    // A load waits for the last change of its key. No other call may run out of patience.
                    failures.add(error);
                } catch (Throwable error) {
                    failures.add(error);
                }
            }
        }

        private void use(int own, long version) throws InterruptedException {
            long key = first + own;
            switch (random.nextInt(10)) {
                case 0, 1, 2 -> {
                    cache.put(key, value(key, version));
                    versions[own] = version;
                }
                case 3 -> {
                    cache.invalidate(key);
                    versions[own] = 0;
                }
                case 4 -> {
                    // The function sees the present value, if the cache has it.
                    cache.asMap().computeIfPresent(key, (_, old) -> {
                        isNewest(own, old);
                        versions[own] = version;
                        return value(key, version);
                    });
                }
                case 5 -> cache.read(key, view -> {
                    slowly(key, view);
                    return true;
                });
                case 6 -> {
                    long other = random.nextLong((long) THREADS * KEYS_OF_THREAD);
                    byte[] value = cache.get(other);
                    if (value != null) {
                        isIntact(other, value);
                    }
                }
                default -> isNewest(own, cache.get(key));
            }
        }

        private void isNewest(int own, byte @Nullable [] found) {
            long key = first + own;
            if (versions[own] == 0 ? found != null : found == null || !Arrays.equals(found, value(key, versions[own]))) {
                throw new AssertionError("key " + key + " has version " + (found == null ? 0 : ByteBuffer.wrap(found).getLong(8)) + ", not " + versions[own]);
            }
        }

        private static void slowly(long key, MemorySegment view) {
            byte[] before = view.toArray(ValueLayout.JAVA_BYTE);
            try {
                Thread.sleep(500);
            } catch (InterruptedException _) {
                Thread.currentThread().interrupt();
            }
            isIntact(key, view.toArray(ValueLayout.JAVA_BYTE));
            assertThat(before).isEqualTo(view.toArray(ValueLayout.JAVA_BYTE));
        }
    }

    private static long resident() throws Exception {
        System.gc();
        String line = Files.readAllLines(Path.of("/proc/self/status")).stream().filter(one -> one.startsWith("VmRSS")).findFirst().orElseThrow();
        return Long.parseLong(line.replaceAll("\\D", "")) << 10;
    }

    // --- The test ----------------------------------------------------------------------------------

    @Test
    void nothingIsLostAndMemoryStaysFlat(@TempDir Path folder) throws Exception {
        assumeTrue(SECONDS > 0, "takes minutes: -Dhugewise.soak=SECONDS");
        try (var postgres = new Postgres(folder)) {
            var rows = new Rows(postgres);
            var users = new ArrayList<User>();
            var back = WriteBack.<Long, byte[]>to(rows::write).window(Duration.ofSeconds(2)).batch(1000).patience(PATIENCE);
            try (var cache = HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(LIMIT).memory(options -> options.only(Backing.base()))
                    .expireAfterWrite(Duration.ofSeconds(20)).loader(rows::read).writeBack(back).removalListener((_, _, _) -> {}).build()) {
                List<Thread> threads = new ArrayList<>();
                for (int i = 0; i < THREADS; i++) {
                    users.add(new User(cache, i));
                    threads.add(Thread.ofVirtual().start(users.getLast()));
                }
                List<Long> memory = run(cache, postgres);
                isEnding = true;
                for (Thread thread : threads) {
                    assertThat(thread.join(PATIENCE)).isTrue();
                }
                assertThat(failures).isEmpty();
                System.out.println("Soak of " + SECONDS + " s: " + operations + " operations by " + THREADS + " virtual threads, " + stops + " stops of the database, "
                        + unavailable + " loads without it, " + cache.stats() + ", resident MiB " + memory.stream().map(bytes -> bytes >> 20).toList());
                assertThat(memory.getLast()).isLessThan((long) (GROWTH * memory.get(memory.size() / 4)));
            }
            isComplete(rows, users);
        }
    }

    /// Changes the limit each second, stops and starts the database each minute, and reads the process' memory.
    private List<Long> run(HugeCache<Long, byte[]> cache, Postgres postgres) throws Exception {
        var random = new SplittableRandom(1);
        List<Long> memory = new ArrayList<>();
        long most = cache.maximumBytes();
        long start = System.nanoTime();
        for (int second = 0; System.nanoTime() - start < TimeUnit.SECONDS.toNanos(SECONDS) && failures.isEmpty(); second++) {
            Thread.sleep(1000);
            cache.setMaximumBytes(random.nextLong(most / 2, most + 1));
            if (second % 60 == 30) {
                postgres.stop(stops.getAndIncrement() % 2 == 0);
                Thread.sleep(random.nextInt(2000, 15_000));
                postgres.start();
            }
            if (second % 30 == 0) {
                memory.add(resident());
            }
        }
        return memory;
    }

    private static void isComplete(Rows rows, List<User> users) throws SQLException {
        long count = 0;
        for (User user : users) {
            for (int own = 0; own < KEYS_OF_THREAD; own++) {
                user.isNewest(own, rows.read(user.first + own));
                count += user.versions[own] == 0 ? 0 : 1;
            }
        }
        long all = count;
        assertThat(rows.<Long>query(connection -> {
            try (var counted = connection.createStatement().executeQuery("select count(*) from rows")) {
                counted.next();
                return counted.getLong(1);
            }
        })).isEqualTo(all);
        System.out.println("The database has the newest version of each of " + all + " rows");
    }
}
