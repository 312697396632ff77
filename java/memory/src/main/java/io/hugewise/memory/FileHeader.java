package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32C;

/// The last 4 KiB of a [HugeFile]: at the end, so that its memory begins on a huge page, and a truncated file has none.
///
/// ```text
/// 0 magic (8) │ 8 version (4) │ 12 CRC32C of 16 to 88 (4) │ 16 size of the memory (8) │ 24 format, UTF-8, zeros (64)
/// 128 its owner ([FileOwner])
/// ```
///
/// Numbers are in the order of the machine: in a file of another order, the magic is another one.
///
/// @param size size of the memory in bytes
record FileHeader(long size, String format) {
    static final int BYTES = 4096;
    static final int VERSION = 2;
    static final int AT_OWNER = 128;

    private static final long MAGIC = 0x4855_4745_4649_4c45L; // HUGEFILE
    private static final int AT_VERSION = 8;
    private static final int AT_CHECKSUM = 12;
    private static final int AT_SIZE = 16;
    private static final int AT_FORMAT = 24;
    private static final int FORMAT_BYTES = 64;
    private static final int END = AT_FORMAT + FORMAT_BYTES;

    FileHeader {
        if (size <= 0) {
            throw new IllegalArgumentException("a file has at least one byte of memory, not " + size);
        }
        if (bytesOf(format).length >= FORMAT_BYTES || format.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("a format has at most 63 bytes, none of them 0: " + format);
        }
    }

    private static byte[] bytesOf(String format) {
        return format.getBytes(StandardCharsets.UTF_8);
    }

    /// Size of the whole file.
    long fileSize(long pageSize) {
        return Math.addExact(size, BYTES + pageSize - 1) & -pageSize;
    }

    /// Writes the header to the end of a mapped file; a file whose writer is killed meanwhile has none.
    void write(MemorySegment file) {
        MemorySegment header = of(file);
        byte[] text = bytesOf(format);
        header.fill((byte) 0);
        header.set(JAVA_INT_UNALIGNED, AT_VERSION, VERSION);
        header.set(JAVA_LONG_UNALIGNED, AT_SIZE, size);
        MemorySegment.copy(text, 0, header, JAVA_BYTE, AT_FORMAT, text.length);
        header.set(JAVA_INT_UNALIGNED, AT_CHECKSUM, checksum(header));
        header.set(JAVA_LONG_UNALIGNED, 0, MAGIC);
    }

    /// Checks a header that was read from a file, and returns the size of the file's memory.
    ///
    /// @param header of [#BYTES]
    /// @param fileSize size of the whole file
    /// @throws IllegalArgumentException why it is refused
    static long sizeIn(MemorySegment header, long fileSize, String format, long pageSize) {
        check(header.get(JAVA_LONG_UNALIGNED, 0) == MAGIC,
                "it has no header: it is of another program, truncated, or its creation was not finished");
        int version = header.get(JAVA_INT_UNALIGNED, AT_VERSION);
        check(version == VERSION, "its header has version " + version + ", and this library knows " + VERSION);
        check(header.get(JAVA_INT_UNALIGNED, AT_CHECKSUM) == checksum(header), "its header is damaged");
        String found = header.getString(AT_FORMAT);
        check(found.equals(format), "its format is '" + found + "', and '" + format + "' is expected");
        long size = header.get(JAVA_LONG_UNALIGNED, AT_SIZE);
        check(size > 0 && size <= fileSize && new FileHeader(size, found).fileSize(pageSize) == fileSize,
                "its size was changed: it has " + Bytes.text(fileSize) + ", for " + Bytes.text(size) + " of memory");
        return size;
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalArgumentException(otherwise);
        }
    }

    static MemorySegment of(MemorySegment file) {
        return file.asSlice(file.byteSize() - BYTES, BYTES);
    }

    private static int checksum(MemorySegment header) {
        CRC32C crc = new CRC32C();
        crc.update(header.asSlice(AT_SIZE, END - AT_SIZE).asByteBuffer());
        return (int) crc.getValue();
    }
}
