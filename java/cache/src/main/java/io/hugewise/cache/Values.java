package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.util.function.Consumer;

/// Values of entries, of which large ones lie in segments of their own.
final class Values {
    private final Segments segments;
    private final Entries entries;

    Values(Segments segments, Entries entries) {
        this.segments = segments;
        this.entries = entries;
    }

    /// Value of an entry that is being read. A large one is a copy.
    MemorySegment read(long entry) {
        int size = entries.valueSize(entry);
        if (!entries.isLarge(entry)) {
            return segments.pool.memory().asSlice(entries.value(entry) - segments.base, size);
        }
        MemorySegment whole = MemorySegment.ofArray(new byte[size]);
        forEachPart(entry, size, (part, at, length) -> MemorySegment.copy(Memory.ALL, part, whole, at, length));
        return whole;
    }

    /// Writes the value of an entry whose header, key and numbers of parts are written.
    void write(long entry, Consumer<MemorySegment> value) {
        int size = entries.valueSize(entry);
        if (!entries.isLarge(entry)) {
            value.accept(Memory.slice(entries.value(entry), size));
            return;
        }
        MemorySegment whole = MemorySegment.ofArray(new byte[size]);
        value.accept(whole);
        forEachPart(entry, size, (part, at, length) -> MemorySegment.copy(whole, at, Memory.ALL, part, length));
    }

    private interface Part {
        void copy(long part, long at, long length);
    }

    private void forEachPart(long entry, long size, Part copy) {
        for (int i = 0; i < entries.segments(size); i++) {
            long at = (long) i * segments.size;
            copy.copy(segments.address(entries.part(entry, i)), at, Math.min(segments.size, size - at));
        }
    }
}
