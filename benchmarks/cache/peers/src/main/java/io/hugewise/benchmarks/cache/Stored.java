package io.hugewise.benchmarks.cache;

import com.sleepycat.je.CacheMode;
import io.hugewise.cache.HugeCache;
import io.hugewise.cache.Serializers;
import io.hugewise.memory.Backing;
import java.io.File;

/// Records on the disk behind a cache of two tiers: JE's own ones, or JE's on the heap with hugewise-cache.
///
/// System properties: `records`, a folder; `heap` and `large`, bytes of the two tiers.
final class Stored {
    private static final File FOLDER = new File(System.getProperty("records", "."));
    private static final long HEAP = Long.getLong("heap", 0);
    private static final long LARGE = Long.getLong("large", 0);

    private Stored() {}

    /// JE with its cache outside of the heap.
    static final class OwnCache implements Cached {
        private final Records records = new Records(FOLDER, HEAP, LARGE, CacheMode.DEFAULT);

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

    /// JE, whose cache on the heap has the inner nodes of its tree, behind hugewise-cache with the values.
    static final class HugeTier implements Cached {
        private final Records records = new Records(FOLDER, HEAP, 0, CacheMode.EVICT_LN);
        private final HugeCache<Key, byte[]> cache;

        HugeTier(Backing backing) {
            cache = HugeCache.builder(new Hugewise.KeySerializer(), Serializers.bytes())
                    .maximumBytes(LARGE)
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
