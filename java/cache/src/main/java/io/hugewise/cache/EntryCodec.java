package io.hugewise.cache;

import io.hugewise.memory.internal.Stack;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Objects;
import java.util.function.BiConsumer;

/// Keys and values of entries as objects.
final class EntryCodec<K, V> {
    private final Serializer<K> keys;
    private final Serializer<V> values;
    private final Store store;
    final ValueHeader header;
    /// Whether values are read and written by a serializer of this package: others may take any time, so they get copies on
    /// the heap.
    final boolean isSoon;
    /// Whether values are equal exactly if their bytes are.
    private final boolean isCanonical;
    /// Writes a value that the store of the cache has, with its header.
    final BiConsumer<V, MemorySegment> writer = (value, to) -> write(value, 0, to);
    /// Writes the bytes of such a value, with its header.
    final BiConsumer<MemorySegment, MemorySegment> copier = (payload, to) -> writePayload(payload, 0, to);

    EntryCodec(Serializer<K> keys, Serializer<V> values, Store store, ValueHeader header) {
        this.keys = keys;
        this.values = values;
        this.store = store;
        this.header = header;
        this.isSoon = values instanceof Serializers.Named;
        this.isCanonical = isSoon || values.isCanonical();
    }

    /// Each operation on a key begins with it: the stack that it needs is claimed, and the time is read.
    byte[] bytes(K key) {
        Stack.claim();
        store.clock.read();
        byte[] bytes = new byte[keys.size(key)];
        keys.write(key, MemorySegment.ofArray(bytes));
        return bytes;
    }

    K key(KeyBytes key) {
        return key(MemorySegment.ofArray(key.bytes));
    }

    K key(MemorySegment bytes) {
        return Objects.requireNonNull(keys.read(bytes), "the serializer of keys has read null");
    }

    /// The bytes of a key as long as the entry is being read.
    MemorySegment keyMemory(long entry) {
        return store.entries.keyMemory(entry);
    }

    V value(MemorySegment payload) {
        return Objects.requireNonNull(values.read(payload), "the serializer of values has read null");
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

    /// The same of an entry that is being read.
    MemorySegment copy(long entry) {
        return copy(payload(entry));
    }

    /// A copy on the heap, if it is not there.
    static MemorySegment copy(MemorySegment bytes) {
        return bytes.isNative() ? MemorySegment.ofArray(Serializers.array(bytes)) : bytes;
    }

    private void write(V value, long state, MemorySegment to) {
        writeHeader(state, to);
        values.write(value, header.size() == 0 ? to : to.asSlice(header.size()));
    }

    /// Writes the header, and the bytes of the value after it.
    void writePayload(MemorySegment payload, long state, MemorySegment to) {
        writeHeader(state, to);
        MemorySegment.copy(payload, 0, to, header.size(), payload.byteSize());
    }

    private void writeHeader(long state, MemorySegment to) {
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

    /// Whether the value of these bytes equals another one.
    boolean isEqual(MemorySegment payload, V other) {
        if (!isCanonical) {
            return value(payload).equals(other);
        }
        try {
            return payload.mismatch(payload(other)) == -1;
        } catch (ClassCastException _) {
            return false;
        }
    }
}
