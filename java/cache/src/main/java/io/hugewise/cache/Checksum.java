package io.hugewise.cache;

import java.util.zip.CRC32C;

/// CRC32C of the key and the value of an entry in a file, by which damage is found after its process was killed.
final class Checksum {
    private Checksum() {}

    /// Checksum of an entry that is written. Its time of expiry and the numbers of its chunks are not a part of it.
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

    private static void add(CRC32C sum, long address, long size) {
        sum.update(Memory.slice(address, size).asByteBuffer());
    }
}
