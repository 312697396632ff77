package io.hugewise.cache;

import io.hugewise.memory.internal.Reported;
import java.lang.ref.Cleaner;
import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.Percentage;
import jdk.jfr.Period;
import jdk.jfr.StackTrace;

/// Events of Flight Recorder for open caches. The class of the event is loaded when a recording has initialized it,
/// because the first such class takes the JVM 0.1 s or more. The page sizes of a cache's memory are in the event
/// `io.hugewise.Coverage` of its arena.
final class CacheEvents {
    private static final Reported<HugeCache<?, ?>> CACHES =
            new Reported<>(() -> CacheEvent.class, cache -> new CacheEvent().commit(cache, cache.stats()));

    private CacheEvents() {}

    /// Lets a cache be recorded.
    ///
    /// @return ends this
    static Cleaner.Cleanable opened(HugeCache<?, ?> cache) {
        return CACHES.add(cache);
    }

    /// The counts of an open cache since it was created.
    @Name("io.hugewise.Cache")
    @Label("Cache Statistics")
    @Category("Hugewise")
    @Period("10 s")
    @StackTrace(false)
    static final class CacheEvent extends Event {
        @Label("Arena")
        String arena = "";

        @Label("Limit")
        @DataAmount
        long limit;

        @Label("Used")
        @DataAmount
        long used;

        @Label("Index")
        @DataAmount
        long index;

        @Label("Entries")
        @Description("Entries that have expired may be included")
        long entries;

        @Label("Hits")
        long hits;

        @Label("Misses")
        long misses;

        @Label("Hit Ratio")
        @Percentage
        double hitRatio;

        @Label("Byte Hit Ratio")
        @Percentage
        double byteHitRatio;

        @Label("Evictions")
        long evictions;

        @Label("Evicted Bytes")
        @DataAmount
        long evictedBytes;

        @Label("Rejections")
        long rejections;

        @Label("Loads")
        long loads;

        @Label("Failed Loads")
        long failedLoads;

        @Label("Background Failures")
        @Description("Errors of the work that evicts and expires")
        long backgroundFailures;

        @Label("Writer Failures")
        @Description("Errors of the thread that writes changes, without those of the store")
        long writerFailures;

        @Label("Listener Failures")
        long listenerFailures;

        @Label("Refresh Failures")
        long refreshFailures;

        @Label("Refused Changes")
        @Description("Changes that the store has refused while it accepted others")
        long refusedChanges;

        @Label("Kept Changes")
        @Description("Refused changes that are still to be written")
        long keptChanges;

        @Label("Unwritten Changes")
        @Description("Changes that the store does not have yet")
        long unwrittenChanges;

        void commit(HugeCache<?, ?> cache, CacheStats stats) {
            arena = cache.name();
            limit = cache.maximumBytes();
            used = cache.usedBytes();
            index = cache.indexBytes();
            entries = cache.estimatedSize();
            hits = stats.hits();
            misses = stats.misses();
            hitRatio = stats.hitRatio();
            byteHitRatio = stats.byteHitRatio();
            evictions = stats.evictions();
            evictedBytes = stats.evictedBytes();
            rejections = stats.rejections();
            loads = stats.loads();
            failedLoads = stats.failedLoads();
            CacheHealth health = stats.health();
            backgroundFailures = health.backgroundFailures();
            writerFailures = health.writerFailures();
            listenerFailures = health.listenerFailures();
            refreshFailures = health.refreshFailures();
            refusedChanges = health.refusedChanges();
            keptChanges = health.keptChanges();
            unwrittenChanges = health.unwrittenChanges();
            commit();
        }
    }
}
