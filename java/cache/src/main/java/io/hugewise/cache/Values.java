package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.util.function.BiConsumer;

/// Values of entries, of which large ones lie in chunks, and their last bytes in the entry.
final class Values {
    private final Segments segments;
    private final Chunks chunks;
    private final Entries entries;

    Values(Segments segments, Chunks chunks, Entries entries) {
        this.segments = segments;
        this.chunks = chunks;
        this.entries = entries;
    }

    /// Address of the first bytes of a value, as many as a chunk can have.
    long first(long entry) {
        return entries.isLarge(entry) ? chunks.address(entries.part(entry, 0)) : entries.value(entry);
    }

    /// Value of an entry that is being read. A large one is a copy.
    MemorySegment read(long entry) {
        int sizes = Entries.sizes(entry);
        int size = entries.valueSize(entry, sizes);
        if (!Entries.isLarge(sizes)) {
            return segments.pool.memory().asSlice(entries.value(entry, sizes) - segments.base, size);
        }
        MemorySegment whole = MemorySegment.ofArray(new byte[size]);
        forEachPart(entry, size, (part, at, length) -> MemorySegment.copy(Memory.ALL, part, whole, at, length));
        return whole;
    }

    /// Writes the value of an entry whose header, key and numbers of chunks are written.
    <V> void write(long entry, long hash, V value, BiConsumer<V, MemorySegment> writer) {
        int size = entries.valueSize(entry);
        if (!entries.isLarge(entry)) {
            writer.accept(value, Memory.slice(entries.value(entry), size));
            return;
        }
        MemorySegment whole = MemorySegment.ofArray(new byte[size]);
        writer.accept(value, whole);
        for (int i = entries.parts(entry) - 1; i >= 0; i--) {
            chunks.setOwner(entries.part(entry, i), hash, i);
        }
        forEachPart(entry, size, (part, at, length) -> MemorySegment.copy(whole, at, Memory.ALL, part, length));
    }

    private interface Part {
        void copy(long part, long at, long length);
    }

    private void forEachPart(long entry, int size, Part copy) {
        int parts = entries.parts(entry);
        long at = 0;
        for (int i = 0; i < parts; i++, at += entries.chunkCapacity) {
            copy.copy(chunks.address(entries.part(entry, i)), at, entries.chunkCapacity);
        }
        copy.copy(entries.rest(entry), at, size - at);
    }
}
