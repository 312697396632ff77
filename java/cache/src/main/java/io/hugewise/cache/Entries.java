package io.hugewise.cache;

import java.lang.foreign.MemorySegment;

/// Layout of an entry, which is aligned to 8 bytes.
///
/// ```text
/// ┌──────────────────┬───────────────────────┬──────────────────────────────┬──────────────────────┬─────┬───────┐
/// │ size of the key  │ size of the value     │ expiry (only if entries can) │ checksum (in a file) │ key │ value │
/// │ 4 bytes          │ 4 bytes               │ 4 bytes                      │ 4 bytes              │     │       │
/// └──────────────────┴───────────────────────┴──────────────────────────────┴──────────────────────┴─────┴───────┘
/// ```
///
/// Of the value of a large entry, all but the last bytes lie in [Chunks], whose numbers are before the last bytes, aligned
/// to 4 bytes, 4 bytes each; the size of the key has the bit [#LARGE].
final class Entries {
    static final int LARGE = 1 << 31;
    private static final int VALUE_SIZE = 4;
    /// Bytes of both sizes.
    static final int SIZES = 8;
    private static final int ALIGNMENT = 8;

    final int header;
    final boolean hasChecksum;
    private final boolean canExpire;
    /// Bytes of a large value that a chunk has.
    final int chunkCapacity;
    /// Largest size of an entry that is not large, unless its key is.
    private final int largest;

    Entries(boolean canExpire, boolean hasChecksum, int segmentSize) {
        this.canExpire = canExpire;
        this.hasChecksum = hasChecksum;
        this.header = SIZES + (canExpire ? Integer.BYTES : 0) + (hasChecksum ? Integer.BYTES : 0);
        this.chunkCapacity = Chunks.capacity(segmentSize);
        this.largest = Chunks.size(segmentSize);
    }

    /// Bytes of an entry in its segment.
    long size(int keySize, long valueSize) {
        if (!isLarge(keySize, valueSize)) {
            return aligned(header + keySize + valueSize);
        }
        long parts = valueSize / chunkCapacity;
        return aligned(numbers(keySize) + Integer.BYTES * parts + valueSize - parts * chunkCapacity);
    }

    private static long aligned(long size) {
        return size + ALIGNMENT - 1 & -ALIGNMENT;
    }

    private boolean isLarge(int keySize, long valueSize) {
        return valueSize >= chunkCapacity && aligned(header + keySize + valueSize) > largest;
    }

    /// Chunks that a value needs.
    int parts(int keySize, int valueSize) {
        return isLarge(keySize, valueSize) ? valueSize / chunkCapacity : 0;
    }

    /// Offset of the numbers of chunks in a large entry.
    private long numbers(int keySize) {
        return (long) header + keySize + Integer.BYTES - 1 & -Integer.BYTES;
    }

    void writeHeader(long entry, int keySize, int valueSize, boolean isLarge) {
        Memory.setInt(entry, isLarge ? keySize | LARGE : keySize);
        Memory.setInt(entry + VALUE_SIZE, valueSize);
    }

    /// Bytes of an entry that was written.
    long size(long entry) {
        return size(keySize(entry), valueSize(entry));
    }

    /// Bytes of what may be an entry.
    ///
    /// @param room bytes until the end of its segment
    /// @return its size; 0 if it cannot be an entry
    long checkedSize(long entry, long room) {
        if (room < header || keySize(entry) > room || valueSize(entry) < 0
                || isLarge(entry) != isLarge(keySize(entry), valueSize(entry))) {
            return 0;
        }
        long size = size(entry);
        return size <= room ? size : 0;
    }

    boolean isLarge(long entry) {
        return Memory.getInt(entry) < 0;
    }

    int keySize(long entry) {
        return Memory.getInt(entry) & ~LARGE;
    }

    int valueSize(long entry) {
        return Memory.getInt(entry + VALUE_SIZE);
    }

    long key(long entry) {
        return entry + header;
    }

    long value(long entry) {
        return key(entry) + keySize(entry);
    }

    MemorySegment keyMemory(long entry) {
        return Memory.slice(key(entry), keySize(entry));
    }

    boolean isOf(long entry, byte[] key) {
        return keySize(entry) == key.length && Memory.startsWith(key(entry), key);
    }

    int expiry(long entry) {
        return canExpire ? Memory.getInt(entry + SIZES) : Clock.NEVER;
    }

    void setExpiry(long entry, int expiry) {
        if (canExpire) {
            Memory.setInt(entry + SIZES, expiry);
        }
    }

    /// Checksum that an entry has, with [#hasChecksum].
    int checksum(long entry) {
        return Memory.getInt(entry + header - Integer.BYTES);
    }

    void setChecksum(long entry, int checksum) {
        Memory.setInt(entry + header - Integer.BYTES, checksum);
    }

    /// Chunks that the value of an entry has.
    int parts(long entry) {
        return isLarge(entry) ? valueSize(entry) / chunkCapacity : 0;
    }

    /// Number of the chunk that has a part of a large value.
    int part(long entry, int number) {
        return Memory.getInt(entry + numbers(keySize(entry)) + (long) number * Integer.BYTES);
    }

    void setPart(long entry, int number, int chunk) {
        Memory.setInt(entry + numbers(keySize(entry)) + (long) number * Integer.BYTES, chunk);
    }

    /// Address of the last bytes of a large value, which are in no chunk.
    long rest(long entry) {
        return entry + numbers(keySize(entry)) + (long) parts(entry) * Integer.BYTES;
    }
}
