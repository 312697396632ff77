package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import java.util.function.LongPredicate;
import org.jspecify.annotations.Nullable;

/// Makes changes in the cache that the store gets later.
final class UnwrittenChanges<K, V> {
    private final ObjectStore<K, V> objects;
    private final Store store;
    private final EntryCodec<K, V> codec;
    private final WriteBehind<K, V> behind;

    UnwrittenChanges(ObjectStore<K, V> objects, WriteBehind<K, V> behind) {
        this.objects = objects;
        this.store = objects.store;
        this.codec = objects.codec;
        this.behind = behind;
    }

    /// Adds, replaces or removes a value, which is to be written to the store.
    ///
    /// @param value the value; null to remove it
    boolean put(KeyBytes key, @Nullable V value, int expiry, LongPredicate isWanted, LongConsumer old) {
        long state = behind.newState(value == null);
        MemorySegment payload = value == null ? MemorySegment.NULL : codec.payload(value);
        int size = Math.addExact(codec.header.size(), (int) payload.byteSize());
        var isPlaced = new AtomicBoolean();
        int pin = behind.begin();
        try {
            Outcome outcome = store.put(key.bytes, key.hash, size, expiry, present -> {
                boolean isReplaced = isPlaced.getPlain() && isWanted.test(present);
                if (isReplaced) {
                    behind.begins(key);
                }
                return isReplaced;
            }, payload, (written, to) -> {
                codec.writePayload(written, state, to);
                isPlaced.setPlain(true);
            }, () -> behind.published(key, value == null), old);
            boolean isMade = outcome == Outcome.ADDED
                    || ((outcome == Outcome.REJECTED || !isPlaced.getPlain()) && putOnHeap(key, payload, state, expiry, isWanted, old));
            if (isMade) {
                if (value != null) {
                    objects.count(key.hash, key.bytes.length, size);
                }
                behind.changed();
            }
            return isMade;
        } finally {
            behind.end(pin);
        }
    }

    /// Keeps a change on the heap that found no memory, until it is written.
    private boolean putOnHeap(KeyBytes key, MemorySegment payload, long state, int expiry, LongPredicate isWanted, LongConsumer old) {
        return store.locked(key.bytes, key.hash, entry -> {
            if (!isWanted.test(entry == 0 || store.isExpired(entry) ? 0 : entry)) {
                return false;
            }
            behind.begins(key);
            // First: an unwritten change of the entry would be lost if the heap had no memory.
            behind.take(key, state, payload, expiry);
            if (entry != 0) {
                store.removeLocked(entry, key.hash);
                old.accept(entry);
            }
            return true;
        });
    }

    /// Removes a value.
    ///
    /// @param isWanted is called with the address of the present entry while no other thread changes it
    /// @param old is called with the address of the removed entry
    /// @return whether there was one
    boolean remove(KeyBytes key, LongPredicate isWanted, LongConsumer old) {
        var removed = new AtomicLong();
        var wasEvicted = new AtomicBoolean();
        boolean isRemoved = put(key, null, Clock.PAST, present -> {
            removed.setPlain(present);
            wasEvicted.setPlain(present == 0 && behind.evictedPayload(key) != null);
            return isWanted.test(present);
        }, entry -> {
            if (entry == removed.getPlain()) {
                old.accept(entry);
                objects.notifyListener(entry, RemovalCause.EXPLICIT);
            } else {
                objects.replaced.accept(entry);
            }
        });
        return isRemoved && (removed.getPlain() != 0 || wasEvicted.getPlain());
    }
}
