package io.hugewise.cache;

import io.hugewise.memory.Backing;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/// Drops small caches before the first one is opened, so that what closing needs is loaded and linked. A servlet container that
/// has stopped an application loads no more classes for it, and a cache that was dropped then could not be closed.
final class Rehearsal {
    private static final long BYTES = 4 << 20;
    private static final Duration PATIENCE = Duration.ofSeconds(1);
    private static final AtomicBoolean OF_MEMORY = new AtomicBoolean();
    private static final AtomicBoolean OF_FILE = new AtomicBoolean();

    private Rehearsal() {}

    /// Rehearses what was not rehearsed before. It throws nothing: caches can be used without.
    ///
    /// @param file that of the cache that is opened; `null` if it has none
    static void before(@Nullable Path file) {
        try {
            if (OF_MEMORY.compareAndSet(false, true)) {
                drop(builder());
                drop(builder().writeBack(WriteBack.<Long, byte[]>to(_ -> {}).patience(PATIENCE)));
            }
            if (file != null && OF_FILE.compareAndSet(false, true)) {
                inFile(Files.createTempFile(file.toAbsolutePath().getParent(), "hugewise-", ""));
            }
        } catch (IOException | RuntimeException | OutOfMemoryError _) {
            // Memory, threads or files may be refused.
        }
    }

    private static void inFile(Path file) throws IOException {
        try {
            Files.delete(file);
            drop(builder().file(file));
        } finally {
            Files.deleteIfExists(file);
        }
    }

    private static HugeCacheBuilder<Long, byte[]> builder() {
        var builder = HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(BYTES).memory(options -> options.only(Backing.base()));
        builder.isRehearsal = true;
        return builder;
    }

    private static void drop(HugeCacheBuilder<Long, byte[]> builder) {
        HugeCache<Long, byte[]> cache = builder.build();
        cache.put(1L, new byte[1]);
        cache.drop();
    }
}
