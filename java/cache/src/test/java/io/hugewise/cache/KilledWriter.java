package io.hugewise.cache;

import io.hugewise.memory.Backing;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.List;

/// A program that changes entries until it is killed. The kernel keeps what it has written to files.
///
/// The file `acknowledged` has, for each put that returned, its key, its version, and the times before and after it in
/// nanoseconds; the file `store` the keys and versions that were written.
final class KilledWriter {
    static final int KEYS = 5_000;
    static final long WINDOW_MILLIS = 100;

    private KilledWriter() {}

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        try (FileChannel store = open(folder.resolve("store")); FileChannel acknowledged = open(folder.resolve("acknowledged"))) {
            var builder = HugeCache.builder(Serializers.longs(), Serializers.longs()).maximumBytes(4 << 20)
                    .memory(options -> options.only(Backing.base()));
            CacheWriter<Long, Long> writer = changes -> write(store, changes);
            if (arguments[1].equals("back")) {
                builder.writeBack(WriteBack.to(writer).window(Duration.ofMillis(WINDOW_MILLIS)));
            } else {
                builder.writeThrough(writer);
            }
            var cache = builder.build();
            ByteBuffer record = ByteBuffer.allocate(4 * Long.BYTES);
            for (long version = 1; ; version++) {
                long key = version * 7919 % KEYS;
                long before = System.nanoTime();
                cache.put(key, version);
                record.clear().putLong(key).putLong(version).putLong(before).putLong(System.nanoTime()).flip();
                acknowledged.write(record);
            }
        }
    }

    private static void write(FileChannel store, List<CacheWriter.Change<Long, Long>> changes) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(changes.size() * 2 * Long.BYTES);
        changes.forEach(change -> bytes.putLong(change.key()).putLong(change.value()));
        store.write(bytes.flip());
    }

    private static FileChannel open(Path file) throws IOException {
        return FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
    }
}
