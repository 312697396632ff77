package io.hugewise.cache;

import java.lang.foreign.MemorySegment;

/// Layout of an entry, which is aligned to 4 bytes.
///
/// ```text
/// ┌─────────┬──────────────────────────────┬──────────────────────┬───────────────────────────────┬─────┬───────┐
/// │ sizes   │ expiry (only if entries can) │ checksum (in a file) │ size of the value (only WIDE) │ key │ value │
/// │ 4 bytes │ 4 bytes                      │ 4 bytes              │ 4 bytes                       │     │       │
/// └─────────┴──────────────────────────────┴──────────────────────┴───────────────────────────────┴─────┴───────┘
///
/// sizes:   31      30     29..20            19..0
///        ┌───────┬──────┬─────────────────┬───────────────────┐
///        │ LARGE │ WIDE │ size of the key │ size of the value │
///        └───────┴──────┴─────────────────┴───────────────────┘
/// ```
///
/// If one of the sizes does not fit, the entry is [#WIDE]: the lower 30 bits are the size of the key.
///
/// Of the value of a large entry, all but the last bytes lie in [Chunks], whose numbers are before the last bytes, aligned
/// to 4 bytes, 4 bytes each; it has the bit [#LARGE].
final class Entries {
    private static final int LARGE = 1 << 31;
    private static final int WIDE = 1 << 30;
    private static final int KEY_SHIFT = 20;
    private static final int MAX_KEY = (1 << 10) - 1;
    private static final int MAX_VALUE = (1 << KEY_SHIFT) - 1;
    /// Of all entries, which are a multiple of it.
    static final int ALIGNMENT = 4;

    /// Bytes before the key, of an entry that is not wide.
    private final int header;
    final boolean hasChecksum;
    private final boolean canExpire;
    /// Bytes of a large value that a chunk has.
    final int chunkCapacity;
    /// Largest size of an entry that is not large, unless its key is.
    private final int largest;

    Entries(boolean canExpire, boolean hasChecksum, int segmentSize) {
        this.canExpire = canExpire;
        this.hasChecksum = hasChecksum;
        this.header = Integer.BYTES + (canExpire ? Integer.BYTES : 0) + (hasChecksum ? Integer.BYTES : 0);
        this.chunkCapacity = Chunks.capacity(segmentSize);
        this.largest = Chunks.size(segmentSize);
    }

    /// Bytes of an entry in its segment.
    long size(int keySize, long valueSize) {
        if (!isLarge(keySize, valueSize)) {
            return aligned((long) header(keySize, valueSize) + keySize + valueSize);
        }
        long parts = valueSize / chunkCapacity;
        return aligned(numbers(keySize, valueSize) + Integer.BYTES * parts + valueSize - parts * chunkCapacity);
    }

    private static long aligned(long size) {
        return size + ALIGNMENT - 1 & -ALIGNMENT;
    }

    private boolean isLarge(int keySize, long valueSize) {
        return valueSize >= chunkCapacity && aligned((long) header(keySize, valueSize) + keySize + valueSize) > largest;
    }

    /// Chunks that a value needs.
    int parts(int keySize, int valueSize) {
        return isLarge(keySize, valueSize) ? valueSize / chunkCapacity : 0;
    }

    /// Offset of the numbers of chunks in a large entry.
    private long numbers(int keySize, long valueSize) {
        return (long) header(keySize, valueSize) + keySize + Integer.BYTES - 1 & -Integer.BYTES;
    }

    private long numbers(long entry) {
        return numbers(keySize(entry), valueSize(entry));
    }

    private static boolean isWide(int keySize, long valueSize) {
        return keySize > MAX_KEY || valueSize > MAX_VALUE;
    }

    private int header(int keySize, long valueSize) {
        return isWide(keySize, valueSize) ? header + Integer.BYTES : header;
    }

    void writeHeader(long entry, int keySize, int valueSize, boolean isLarge) {
        int flag = isLarge ? LARGE : 0;
        if (isWide(keySize, valueSize)) {
            Memory.setInt(entry, flag | WIDE | keySize);
            Memory.setInt(entry + header, valueSize);
        } else {
            Memory.setInt(entry, flag | keySize << KEY_SHIFT | valueSize);
        }
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
        if (room < header || (isWide(sizes(entry)) && room < header + Integer.BYTES)) {
            return 0;
        }
        int keySize = keySize(entry);
        int valueSize = valueSize(entry);
        if (keySize > room || valueSize < 0 || isWide(sizes(entry)) != isWide(keySize, valueSize)
                || isLarge(entry) != isLarge(keySize, valueSize)) {
            return 0;
        }
        long size = size(entry);
        return size <= room ? size : 0;
    }

    boolean isLarge(long entry) {
        return isLarge(sizes(entry));
    }

    static boolean isLarge(int sizes) {
        return sizes < 0;
    }

    /// The first field of an entry, for methods that take it.
    static int sizes(long entry) {
        return Memory.getInt(entry);
    }

    private static boolean isWide(int sizes) {
        return (sizes & WIDE) != 0;
    }

    int keySize(long entry) {
        return keySizeOf(sizes(entry));
    }

    private static int keySizeOf(int sizes) {
        return isWide(sizes) ? sizes & WIDE - 1 : sizes >>> KEY_SHIFT & MAX_KEY;
    }

    int valueSize(long entry) {
        return valueSize(entry, sizes(entry));
    }

    int valueSize(long entry, int sizes) {
        return isWide(sizes) ? Memory.getInt(entry + header) : sizes & MAX_VALUE;
    }

    long key(long entry) {
        return key(entry, sizes(entry));
    }

    private long key(long entry, int sizes) {
        return entry + header + (isWide(sizes) ? Integer.BYTES : 0);
    }

    long value(long entry) {
        return value(entry, sizes(entry));
    }

    long value(long entry, int sizes) {
        return key(entry, sizes) + keySizeOf(sizes);
    }

    MemorySegment keyMemory(long entry) {
        return Memory.slice(key(entry), keySize(entry));
    }

    boolean isOf(long entry, byte[] key) {
        int sizes = sizes(entry);
        return keySizeOf(sizes) == key.length && Memory.startsWith(key(entry, sizes), key);
    }

    int expiry(long entry) {
        return canExpire ? Memory.getInt(entry + Integer.BYTES) : Clock.NEVER;
    }

    /// Changes when an entry expires, together with the checksum: a killed process has changed both or none.
    void setExpiry(long entry, int expiry) {
        if (canExpire && hasChecksum) {
            long both = Memory.getLong(entry + Integer.BYTES);
            int before = (int) both;
            int checksum = (int) (both >>> Integer.SIZE) ^ mixed(before) ^ mixed(expiry);
            Memory.setLong(entry + Integer.BYTES, (long) checksum << Integer.SIZE | Integer.toUnsignedLong(expiry));
        } else if (canExpire) {
            Memory.setInt(entry + Integer.BYTES, expiry);
        }
    }

    /// What the time of expiry adds to a checksum.
    private static int mixed(int expiry) {
        return expiry * 0x9E37_79B1;
    }

    /// Checksum of an entry without its time of expiry, with [#hasChecksum]; another one if the time was damaged.
    int checksum(long entry) {
        return Memory.getInt(entry + header - Integer.BYTES) ^ mixed(expiry(entry));
    }

    void setChecksum(long entry, int checksum) {
        Memory.setInt(entry + header - Integer.BYTES, checksum ^ mixed(expiry(entry)));
    }

    /// Chunks that the value of an entry has.
    int parts(long entry) {
        return isLarge(entry) ? valueSize(entry) / chunkCapacity : 0;
    }

    /// Number of the chunk that has a part of a large value.
    int part(long entry, int number) {
        return Memory.getInt(entry + numbers(entry) + (long) number * Integer.BYTES);
    }

    /// Whether a chunk has the part of this number, which may be any number.
    boolean hasPart(long entry, int number, int chunk) {
        return number >= 0 && number < parts(entry) && part(entry, number) == chunk;
    }

    void setPart(long entry, int number, int chunk) {
        Memory.setInt(entry + numbers(entry) + (long) number * Integer.BYTES, chunk);
    }

    /// Address of the last bytes of a large value, which are in no chunk.
    long rest(long entry) {
        return entry + numbers(entry) + (long) parts(entry) * Integer.BYTES;
    }
}
