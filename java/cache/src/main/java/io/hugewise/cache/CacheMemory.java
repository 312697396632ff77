package io.hugewise.cache;

import io.hugewise.memory.Coverage;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import io.hugewise.memory.Obtained;
import io.hugewise.memory.SegmentPool;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/// Memory of a cache: of this process alone, or of a file.
///
/// @param pool of which no segment is taken
record CacheMemory(String name, SegmentPool pool, Manifest manifest, Restart restart, Obtained backing, Supplier<Coverage> coverage,
        Runnable closing) implements AutoCloseable {
    /// Reserves memory of this process.
    static CacheMemory reserve(HugeOptions options, long segmentSize, LongSupplier nanos) {
        HugeArena arena = HugeArena.ofShared(options);
        try {
            SegmentPool pool = SegmentPool.of(arena, segmentSize, Segments.FIELDS);
            Manifest manifest = Manifest.onHeap(pool.count());
            manifest.format("", ThreadLocalRandom.current().nextLong(), nanos.getAsLong());
            return new CacheMemory(arena.name().orElse(""), pool, manifest, new Restart(Restart.Kind.NEW, ""), arena.backing(), arena::coverage, arena::close);
        } catch (Throwable error) {
            arena.close();
            throw error;
        }
    }

    @Override
    public void close() {
        closing.run();
    }
}
