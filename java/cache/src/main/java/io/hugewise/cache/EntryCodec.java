package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Objects;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/// Keys and values of entries as objects.
final class EntryCodec<K, V> {
    private final Serializer<K> keys;
    private final Serializer<V> values;
    private final Store store;
    final ValueHeader header;
    /// Writes a value that the store of the cache has, with its header.
    final BiConsumer<V, MemorySegment> writer = (value, to) -> write(value, 0, to);

    EntryCodec(Serializer<K> keys, Serializer<V> values, Store store, ValueHeader header) {
        this.keys = keys;
        this.values = values;
        this.store = store;
        this.header = header;
    }

    byte[] bytes(K key) {
        byte[] bytes = new byte[keys.size(key)];
        keys.write(key, MemorySegment.ofArray(bytes));
        return bytes;
    }

    K key(KeyBytes key) {
        return keys.read(MemorySegment.ofArray(key.bytes));
    }

    K key(long entry) {
        return keys.read(store.entries.keyMemory(entry));
    }

    V value(long entry) {
        return values.read(payload(entry));
    }

    V value(MemorySegment payload) {
        return values.read(payload);
    }

    /// The bytes of a value without its header.
    MemorySegment payload(long entry) {
        MemorySegment value = store.value(entry);
        return header.size() == 0 ? value : value.asSlice(header.size());
    }

    int size(V value) {
        return values.size(value);
    }

    /// The bytes of a value on the heap.
    MemorySegment payload(V value) {
        MemorySegment bytes = MemorySegment.ofArray(new byte[values.size(value)]);
        values.write(value, bytes);
        return bytes;
    }

    static MemorySegment copy(MemorySegment bytes) {
        return MemorySegment.ofArray(bytes.toArray(ValueLayout.JAVA_BYTE));
    }

    /// Writes the header and the value.
    void write(V value, long state, MemorySegment to) {
        writeHeader(state, to);
        write(value, to);
    }

    /// Writes the value after its header.
    void write(V value, MemorySegment to) {
        values.write(value, header.size() == 0 ? to : to.asSlice(header.size()));
    }

    void writeHeader(long state, MemorySegment to) {
        if (header.hasState()) {
            to.set(ValueLayout.JAVA_LONG_UNALIGNED, 0, state);
        }
        if (header.hasTime()) {
            to.set(ValueLayout.JAVA_INT_UNALIGNED, header.timeOffset(), store.clock.now());
        }
    }

    /// Ticks at which an entry was written.
    int written(long entry) {
        return Memory.getInt(store.valueAddress(entry) + header.timeOffset());
    }

    /// Whether the value of an entry has the same bytes as another one.
    boolean isValue(long entry, @Nullable Object other) {
        @SuppressWarnings("unchecked")
        V value = (V) Objects.requireNonNull(other);
        return payload(entry).mismatch(payload(value)) == -1;
    }
}
