package io.hugewise.cache;

import java.util.concurrent.atomic.LongAdder;
import org.jspecify.annotations.Nullable;

/// Reads of values that lie on the heap, too.
///
/// @param <V> type of values
final class HeapTier<V> {
    private final HeapTable<V> table;
    private final Store store;
    private final long accessNanos;
    private final LongAdder hitBytes;
    private final LongAdder hits = new LongAdder();

    /// @param accessNanos time until a value expires after it was read; 0 if reads do not change it
    HeapTier(HeapTable<V> table, Store store, long accessNanos, LongAdder hitBytes) {
        this.table = table;
        this.store = store;
        this.accessNanos = accessNanos;
        this.hitBytes = hitBytes;
    }

    HeapStats stats() {
        return new HeapStats(hits.sum(), table.entries(), table.weight());
    }

    /// Reads the value of a key, and counts the use.
    ///
    /// @return the value; null if it is not on the heap
    @Nullable V get(byte[] key, long hash) {
        HeapTable.Node<V> node = table.get(key, hash);
        if (node == null || !isPresent(node)) {
            return null;
        }
        store.checkOpen();
        if (node.read()) {
            store.use(key, hash);
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

    /// Adds a value that was read in the store, if it is read often. The reader of its entry calls it.
    void wasRead(long entry, byte[] key, long hash, V value) {
        if (table.isWanted(hash)) {
            var node = new HeapTable.Node<>(key, hash, value, store.entries.valueSize(entry), table.weight(value), store.entries.expiry(entry));
            store.ifPresent(entry, key, hash, () -> table.add(node));
        }
    }
}
