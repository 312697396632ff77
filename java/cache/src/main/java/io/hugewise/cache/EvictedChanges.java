package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/// Unwritten changes whose entries had to leave the memory of the cache, on the heap until they are written. Changes of
/// a key need the lock of its stripe.
final class EvictedChanges {
    private static final long OVERHEAD = 150;

    private final Map<KeyBytes, Evicted> changes = new LinkedHashMap<>();
    private volatile long bytes;
    private volatile int values;

    /// A change.
    ///
    /// @param state its version and kind
    /// @param payload the bytes of the value, on the heap
    /// @param expiry when the entry expires
    record Evicted(long state, MemorySegment payload, int expiry) {
        boolean isRemoval() {
            return (state & WriteBehind.REMOVAL) != 0;
        }

        long size(KeyBytes key) {
            return key.bytes.length + payload.byteSize() + OVERHEAD;
        }
    }

    synchronized void put(KeyBytes key, Evicted change) {
        Evicted before = changes.put(key, change);
        bytes += change.size(key) - (before == null ? 0 : before.size(key));
        values += (change.isRemoval() ? 0 : 1) - (before == null || before.isRemoval() ? 0 : 1);
    }

    synchronized @Nullable Evicted get(KeyBytes key) {
        return changes.get(key);
    }

    synchronized void remove(KeyBytes key) {
        Evicted removed = changes.remove(key);
        bytes -= removed == null ? 0 : removed.size(key);
        values -= removed == null || removed.isRemoval() ? 0 : 1;
    }

    /// Adds some keys to a collection, the oldest first.
    synchronized void keys(int most, Collection<KeyBytes> to) {
        changes.keySet().stream().limit(most).forEach(to::add);
    }

    synchronized int size() {
        return changes.size();
    }

    /// Number of those that are no removals.
    int values() {
        return values;
    }

    /// The values of those that are no removals and meet a condition.
    synchronized Map<KeyBytes, MemorySegment> payloads(Predicate<Evicted> isWanted) {
        Map<KeyBytes, MemorySegment> payloads = new LinkedHashMap<>();
        changes.forEach((key, change) -> {
            if (!change.isRemoval() && isWanted.test(change)) {
                payloads.put(key, change.payload());
            }
        });
        return payloads;
    }

    boolean isEmpty() {
        return bytes == 0;
    }

    /// Bytes on the heap.
    long bytes() {
        return bytes;
    }
}
