package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.util.Objects;
import java.util.Optional;
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

    /// The value of an entry, whose use is noted. Functions of the cache's user get a copy, and are called when the entry is
    /// not being read any more: they may take any time.
    private @Nullable V entryValue(K key, KeyBytes bytes) {
        MemorySegment copy = null;
        @Nullable V value = null;
        long entry;
        long size;
        int expiry;
        int accessed = expiration.afterAccess();
        int generation = store.generation();
        int read = store.beginRead();
        try {
            entry = store.find(bytes.bytes, bytes.hash);
            if (entry == 0) {
                return null;
            }
            MemorySegment payload = used(entry, accessed);
            size = payload.byteSize();
            expiry = store.entries.expiry(entry);
            if (codec.isSoon) {
                value = codec.value(payload);
            } else {
                copy = EntryCodec.copy(payload);
            }
        } finally {
            store.endRead(read);
        }
        V result = copy == null ? Objects.requireNonNull(value) : codec.value(copy);
        if (expiration.dependsOnPresent()) {
            int later = expiration.afterRead(key, result, expiry);
            if (later != expiry) {
                store.ifPresent(entry, generation, bytes.bytes, bytes.hash, () -> store.setExpiry(entry, later));
            }
        }
        if (heap != null) {
            heap.wasRead(entry, generation, bytes, size, result);
        }
        return result;
    }

    /// The bytes of the value of an entry that is being read, whose use is noted.
    private MemorySegment used(long entry, int accessed) {
        MemorySegment payload = codec.payload(entry);
        hitBytes.add(payload.byteSize());
        if (expiration.isChangedByReads()) {
            store.setExpiry(entry, expiryAfterRead(entry, accessed));
        }
        return payload;
    }

    /// What a function reads from the bytes of a value; empty if there is none.
    <R> Optional<R> view(KeyBytes key, Function<MemorySegment, ? extends @Nullable R> reader) {
        estimate(key);
        MemorySegment present = entryBytes(key);
        MemorySegment bytes = present == null ? objects.evictedPayload(key) : present;
        return bytes == null ? Optional.empty() : Optional.ofNullable(reader.apply(bytes.asReadOnly()));
    }

    private @Nullable MemorySegment entryBytes(KeyBytes key) {
        int accessed = expiration.afterAccess();
        int read = store.beginRead();
        try {
            long entry = store.find(key.bytes, key.hash);
            return entry == 0 ? null : EntryCodec.copy(used(entry, accessed));
        } finally {
            store.endRead(read);
        }
    }

    private int expiryAfterRead(long entry, int accessed) {
        return expiration.afterRead(store.entries.expiry(entry), accessed, codec.header.hasTime() ? codec.written(entry) : 0);
    }

    private void estimate(KeyBytes key) {
        MissRatioEstimate estimate = objects.estimate;
        if (estimate != null) {
            estimate.read(key);
        }
    }
}
