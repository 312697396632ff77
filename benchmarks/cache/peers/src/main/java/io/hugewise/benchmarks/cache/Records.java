package io.hugewise.benchmarks.cache;

import com.sleepycat.je.CacheMode;
import com.sleepycat.je.Cursor;
import com.sleepycat.je.Database;
import com.sleepycat.je.DatabaseConfig;
import com.sleepycat.je.DatabaseEntry;
import com.sleepycat.je.Environment;
import com.sleepycat.je.EnvironmentConfig;
import com.sleepycat.je.Get;
import com.sleepycat.je.ReadOptions;
import com.sleepycat.je.StatsConfig;
import java.io.File;
import java.util.function.BiConsumer;

/// Records on the disk, in Berkeley DB JE: values of [Values] by key.
final class Records implements AutoCloseable {
    private static final String NAME = "records";
    private static final int STEPS = 200;

    private final Environment environment;
    private final Database database;
    private final ReadOptions options;

    /// Opens records to be read.
    ///
    /// @param heapBytes cache of JE on the heap
    /// @param offHeapBytes cache of JE outside of it; 0 for none
    /// @param mode which nodes a read leaves in these caches
    Records(File folder, long heapBytes, long offHeapBytes, CacheMode mode) {
        var configuration = new EnvironmentConfig();
        configuration.setReadOnly(true).setLocking(false).setCacheSize(heapBytes).setOffHeapCacheSize(offHeapBytes);
        environment = new Environment(folder, configuration);
        database = environment.openDatabase(null, NAME, new DatabaseConfig().setReadOnly(true));
        options = new ReadOptions().setCacheMode(mode);
    }

    /// Adds records with the numbers from 0 on; prints the number of written ones from time to time.
    public static void main(String[] arguments) {
        int count = Integer.parseInt(arguments[1]);
        var configuration = new EnvironmentConfig();
        configuration.setAllowCreate(true).setConfigParam(EnvironmentConfig.LOG_FILE_MAX, Long.toString(256L << 20));
        try (var environment = new Environment(new File(arguments[0]), configuration);
                var database = environment.openDatabase(null, NAME, new DatabaseConfig().setAllowCreate(true).setDeferredWrite(true))) {
            for (int number = 0; number < count; number++) {
                database.put(null, new DatabaseEntry(Bytes.of(Key.of(number))), new DatabaseEntry(CacheTurns.VALUES.value(number, 0)));
                if (number % (count / STEPS + 1) == 0) {
                    System.out.println(number);
                }
            }
            database.sync();
            environment.sync();
        }
    }

    byte[] read(Key key) {
        var value = new DatabaseEntry();
        return database.get(null, new DatabaseEntry(Bytes.of(key)), value, Get.SEARCH, options) == null ? null : value.getData();
    }

    /// Reads all records in the order of their numbers.
    void scan(BiConsumer<Key, byte[]> reader) {
        try (Cursor cursor = database.openCursor(null, null)) {
            var key = new DatabaseEntry();
            var value = new DatabaseEntry();
            while (cursor.get(key, value, Get.NEXT, options) != null) {
                reader.accept(Bytes.key(key.getData()), value.getData());
            }
        }
    }

    /// {@return the number of reads of the files}
    long fileReads() {
        var stats = environment.getStats(new StatsConfig().setFast(true));
        return stats.getNRandomReads() + stats.getNSequentialReads();
    }

    @Override
    public void close() {
        database.close();
        environment.close();
    }
}
