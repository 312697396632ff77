package io.hugewise.benchmarks.cache;

import com.sleepycat.je.CacheMode;
import io.hugewise.cache.HugeCache;
import io.hugewise.cache.Serializers;
import io.hugewise.memory.Backing;
import java.io.File;

/// Records on the disk behind a cache of two tiers: JE's own ones, or those of hugewise-cache.
///
/// System properties: `records`, a folder; bytes: `nodes`, JE's cache on the heap; `heap`, values of hugewise-cache on the
/// heap; `large`, the tier outside of it.
final class Stored {
    private static final File FOLDER = new File(System.getProperty("records", "."));
    private static final long NODES = Long.getLong("nodes", 0);
    private static final long HEAP = Long.getLong("heap", 0);
    private static final long LARGE = Long.getLong("large", 0);
    /// Bytes on the heap of a value beside its own: its array, its key, and its place in the tier.
    private static final long VALUE_OVERHEAD = 120;

    private Stored() {}

    /// JE with its cache outside of the heap.
    static final class OwnCache implements Cached {
        private final Records records = new Records(FOLDER, NODES, LARGE, CacheMode.DEFAULT);

        OwnCache() {
            records.scan((key, value) -> {});
        }

        @Override
        public byte[] get(Key key) {
            return records.read(key);
        }

        @Override
        public long fileReads() {
            return records.fileReads();
        }
    }

    /// JE, whose cache has the inner nodes of its tree, behind hugewise-cache with the values.
    static final class HugeTier implements Cached {
        private final Records records = new Records(FOLDER, NODES, 0, CacheMode.EVICT_LN);
        private final HugeCache<Key, byte[]> cache;

        HugeTier(Backing backing) {
            cache = HugeCache.builder(new Hugewise.KeySerializer(), Serializers.bytes())
                    .maximumBytes(LARGE)
                    .heapWeight(HEAP, value -> value.length + VALUE_OVERHEAD)
                    .memory(options -> options.only(backing).pretouch())
                    .build();
            records.scan(cache::put);
        }

        @Override
        public byte[] get(Key key) {
            return cache.get(key, records::read);
        }

        @Override
        public long fileReads() {
            return records.fileReads();
        }
    }
}
