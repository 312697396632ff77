package io.hugewise.cache;

import java.lang.foreign.MemorySegment;

/// Layout of an entry, which is aligned to 8 bytes.
///
/// ```text
/// ┌──────────────────┬───────────────────────┬──────────────────────────────┬─────┬───────┐
/// │ size of the key  │ size of the value     │ expiry (only if entries can) │ key │ value │
/// │ 4 bytes          │ 4 bytes               │ 4 bytes                      │     │       │
/// └──────────────────┴───────────────────────┴──────────────────────────────┴─────┴───────┘
/// ```
///
/// The value of a large entry lies in segments of its own, whose numbers are here instead, 4 bytes each; the size of
/// the key has the bit [#LARGE].
final class Entries {
    static final int LARGE = 1 << 31;
    private static final int VALUE_SIZE = 4;
    private static final int EXPIRY = 8;
    private static final int ALIGNMENT = 8;

    final int header;
    private final int segmentSize;

    Entries(boolean canExpire, int segmentSize) {
        this.header = canExpire ? EXPIRY + Integer.BYTES : EXPIRY;
        this.segmentSize = segmentSize;
    }

    /// Bytes of an entry in its segment.
    long size(int keySize, long valueSize) {
        long inline = isLarge(keySize, valueSize) ? (long) Integer.BYTES * segments(valueSize) : valueSize;
        return aligned(header + keySize + inline);
    }

    private static long aligned(long size) {
        return size + ALIGNMENT - 1 & -ALIGNMENT;
    }

    boolean isLarge(int keySize, long valueSize) {
        return aligned(header + keySize + valueSize) > segmentSize;
    }

    /// Segments that a large value needs.
    int segments(long valueSize) {
        return Math.toIntExact((valueSize + segmentSize - 1) / segmentSize);
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
        return header == EXPIRY ? Clock.NEVER : Memory.getInt(entry + EXPIRY);
    }

    void setExpiry(long entry, int expiry) {
        if (header != EXPIRY) {
            Memory.setInt(entry + EXPIRY, expiry);
        }
    }

    /// Number of the segment that has a part of a large value.
    int part(long entry, int number) {
        return Memory.getInt(value(entry) + (long) number * Integer.BYTES);
    }

    void setPart(long entry, int number, int segment) {
        Memory.setInt(value(entry) + (long) number * Integer.BYTES, segment);
    }
}
