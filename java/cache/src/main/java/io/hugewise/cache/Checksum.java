package io.hugewise.cache;

import io.hugewise.memory.SegmentPool;
import java.util.zip.CRC32C;

/// CRC32C of what is in a file: of entries, by which damage is found after its process was killed, and of whole
/// segments, by which it is found after the cache was closed.
final class Checksum {
    private Checksum() {}

    /// Checksum of an entry that is written. The numbers of its chunks are not a part of it, nor is its time of expiry,
    /// which [Entries] adds.
    static int of(long entry, Entries layout, Segments segments) {
        var sum = new CRC32C();
        add(sum, entry, Integer.BYTES);
        if (!layout.isLarge(entry)) {
            add(sum, layout.key(entry), (long) layout.keySize(entry) + layout.valueSize(entry));
            return (int) sum.getValue();
        }
        add(sum, layout.key(entry), layout.keySize(entry));
        int parts = layout.parts(entry);
        for (int i = 0; i < parts; i++) {
            add(sum, Chunks.address(segments, layout.part(entry, i)), layout.chunkCapacity);
        }
        add(sum, layout.rest(entry), layout.valueSize(entry) - (long) parts * layout.chunkCapacity);
        return (int) sum.getValue();
    }

    /// Checksum of a segment.
    static long of(SegmentPool pool, int segment) {
        var sum = new CRC32C();
        sum.update(pool.memory().asSlice(segment * pool.segmentSize(), pool.segmentSize()).asByteBuffer());
        return sum.getValue();
    }

    private static void add(CRC32C sum, long address, long size) {
        sum.update(Memory.slice(address, size).asByteBuffer());
    }
}
