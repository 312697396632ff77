package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/// Reads of values: on the heap, of entries, and of changes whose entries were evicted. Each counts as a use.
final class Reads<K, V> {
    final LongAdder hitBytes = new LongAdder();
    final @Nullable HeapTier<V> heap;
    private final ObjectStore<K, V> objects;
    private final Store store;
    private final EntryCodec<K, V> codec;
    private final Expiration<K, V> expiration;

    /// @param table null without values on the heap
    Reads(ObjectStore<K, V> objects, @Nullable HeapTable<V> table) {
        this.objects = objects;
        this.store = objects.store;
        this.codec = objects.codec;
        this.expiration = objects.expiration;
        this.heap = table == null ? null : new HeapTier<>(table, store, expiration, hitBytes);
    }

    @Nullable V value(K key, KeyBytes bytes) {
        estimate(bytes);
        V value = heap == null ? null : heap.get(bytes);
        if (value == null) {
            value = entryValue(key, bytes);
        }
        return value == null ? objects.evictedValue(bytes) : value;
    }

    private @Nullable V entryValue(K key, KeyBytes bytes) {
        int read = store.beginRead();
        try {
            long entry = store.find(bytes.bytes, bytes.hash);
            return entry == 0 ? null : used(key, bytes, entry);
        } finally {
            store.endRead(read);
        }
    }

    /// The value of an entry, whose use is noted.
    private V used(K key, KeyBytes bytes, long entry) {
        MemorySegment payload = codec.payload(entry);
        hitBytes.add(payload.byteSize());
        V value = codec.value(payload);
        if (expiration.isChangedByReads()) {
            store.setExpiry(entry, expiration.afterRead(key, value, expiryAfterRead(entry)));
        }
        if (heap != null) {
            heap.wasRead(entry, bytes, payload.byteSize(), value);
        }
        return value;
    }

    /// What a function reads from the bytes of a value; empty if there is none.
    <R> Optional<R> view(KeyBytes key, Function<MemorySegment, ? extends @Nullable R> reader) {
        estimate(key);
        if (objects.behind == null) {
            return Optional.ofNullable(this.<R>entry(key, reader));
        }
        var isRead = new AtomicBoolean();
        R result = this.<R>entry(key, view -> {
            isRead.setPlain(true);
            return reader.apply(view);
        });
        MemorySegment evicted = isRead.getPlain() ? null : objects.evictedPayload(key);
        return Optional.ofNullable(evicted == null ? result : reader.apply(evicted.asReadOnly()));
    }

    private <R> @Nullable R entry(KeyBytes key, Function<MemorySegment, ? extends @Nullable R> reader) {
        int read = store.beginRead();
        try {
            long entry = store.find(key.bytes, key.hash);
            if (entry == 0) {
                return null;
            }
            if (expiration.isChangedByReads()) {
                store.setExpiry(entry, expiryAfterRead(entry));
            }
            MemorySegment payload = codec.payload(entry);
            hitBytes.add(payload.byteSize());
            return reader.apply(payload.asReadOnly());
        } finally {
            store.endRead(read);
        }
    }

    private int expiryAfterRead(long entry) {
        return expiration.afterRead(store.entries.expiry(entry), codec.header.hasTime() ? codec.written(entry) : 0);
    }

    private void estimate(KeyBytes key) {
        MissRatioEstimate estimate = objects.estimate;
        if (estimate != null) {
            estimate.read(key);
        }
    }
}
