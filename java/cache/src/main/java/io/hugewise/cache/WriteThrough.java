package io.hugewise.cache;

import java.util.List;
import java.util.function.BooleanSupplier;
import java.util.function.LongConsumer;
import java.util.function.LongPredicate;

/// Writes changes to the store of a cache, then to the cache, while no other thread changes their keys. If it is not certain
/// what the store has, the entry is removed.
final class WriteThrough<K, V> {
    private final CacheWriter<K, V> writer;
    private final ObjectStore<K, V> objects;

    WriteThrough(CacheWriter<K, V> writer, ObjectStore<K, V> objects) {
        this.writer = writer;
        this.objects = objects;
    }

    /// Writes a change.
    ///
    /// @param isWanted is called with the address of the present entry, or 0
    /// @param toCache makes it in the cache
    /// @return false if it was not wanted, or else what `toCache` returns
    boolean write(KeyBytes key, CacheWriter.Change<K, V> change, LongPredicate isWanted, BooleanSupplier toCache) {
        return objects.pending.exclusively(key, () -> {
            Boolean isPresentWanted = objects.peek(key, isWanted::test);
            if (!(isPresentWanted == null ? isWanted.test(0) : isPresentWanted)) {
                return false;
            }
            // Before the store has the change: there may be no memory on the heap then.
            LongPredicate isOld = _ -> {
                objects.pending.discard(key);
                return true;
            };
            LongConsumer removed = entry -> objects.notifyListener(entry, RemovalCause.EXPLICIT);
            boolean isCertain = false;
            try {
                writeToStore(change);
                objects.store.clock.read();
                boolean result = toCache.getAsBoolean();
                isCertain = true;
                return result;
            } finally {
                if (!isCertain) {
                    objects.store.remove(key.bytes, key.hash, isOld, removed);
                }
            }
        });
    }

    private void writeToStore(CacheWriter.Change<K, V> change) {
        try {
            writer.writeAll(List.of(change));
        } catch (Exception error) {
            throw new UnwrittenException("the change was not made in the cache, from which the entry is removed: the store failed", error);
        }
    }
}
