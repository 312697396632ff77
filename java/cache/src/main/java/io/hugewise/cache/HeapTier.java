package io.hugewise.cache;

import java.util.concurrent.atomic.LongAdder;
import org.jspecify.annotations.Nullable;

/// Reads of values that lie on the heap, too.
///
/// @param <V> type of values
final class HeapTier<V> {
    /// Values that are added between two adaptations.
    private static final int PERIOD = 1024;
    /// Hits for each added value.
    private static final long LEAST_HITS = 4;
    private static final int MOST_SKIPPED = 255;

    private final HeapTable<V> table;
    private final Store store;
    private final Expiration<?, V> expiration;
    private final LongAdder hitBytes;
    private final LongAdder hits = new LongAdder();
    /// Values that were wanted and added; concurrent ones may be lost.
    private int wanted;
    private int added;
    private long hitsBefore;
    /// Only each value is added whose number has none of these bits.
    private int skipped;

    HeapTier(HeapTable<V> table, Store store, Expiration<?, V> expiration, LongAdder hitBytes) {
        this.table = table;
        this.store = store;
        this.expiration = expiration;
        this.hitBytes = hitBytes;
    }

    HeapStats stats() {
        return new HeapStats(hits.sum(), table.entries(), table.weight());
    }

    /// Reads the value of a key, and counts the use.
    ///
    /// @return the value; null if it is not on the heap
    @Nullable V get(KeyBytes key) {
        HeapTable.Node<V> node = table.get(key.bytes, key.hash);
        if (node == null || !isPresent(node)) {
            return null;
        }
        store.checkOpen();
        if (node.read()) {
            store.use(key.bytes, key.hash);
        }
        store.hits.increment();
        hits.increment();
        hitBytes.add(node.bytes);
        return node.value;
    }

    private boolean isPresent(HeapTable.Node<V> node) {
        int expiry = node.expiry;
        if (expiry == Clock.NEVER) {
            return true;
        }
        if (Clock.isPast(expiry, store.clock.now())) {
            return false;
        }
        long accessNanos = expiration.accessNanos;
        int later = accessNanos > 0 ? store.clock.after(accessNanos) : expiry;
        if (later == expiry) {
            return true;
        }
        node.expiry = later;
        return store.peek(node.key, node.hash, entry -> {
            store.setExpiry(entry, later);
            return true;
        }) != null;
    }

    /// Adds a value that was read in the store, if it is read often.
    ///
    /// @param generation the one of the store in which its entry was read
    /// @param bytes size of the value in the store
    void wasRead(long entry, int generation, KeyBytes key, long bytes, V value) {
        if (table.isWanted(key.hash) && (wanted++ & skipped) == 0) {
            adapt();
            var node = new HeapTable.Node<>(key.bytes, key.hash, value, bytes, table.weight(value), Clock.PAST);
            store.ifPresent(entry, generation, key.bytes, key.hash, () -> {
                node.expiry = store.entries.expiry(entry);
                table.add(node);
            });
        }
    }

    /// Adds fewer values if those on the heap are not read often enough to be worth the time.
    private void adapt() {
        if (++added < PERIOD) {
            return;
        }
        long now = hits.sum();
        boolean isWorthIt = now - hitsBefore >= LEAST_HITS * PERIOD;
        skipped = isWorthIt ? skipped >> 1 : Math.min(MOST_SKIPPED, skipped << 1 | 1);
        hitsBefore = now;
        added = 0;
    }
}
