package io.hugewise.benchmarks.cache;

import java.util.Arrays;
import java.util.Random;

/// Values whose size and bytes follow from their key and a version: the number of the key, the version, then a part of
/// a pattern. Any value that was read can be checked to the last byte.
final class Values {
    private static final int HEADER = 16;
    private static final int OFFSETS = 1 << 12;

    private final int smallest;
    private final int sizes;
    private final byte[] pattern;

    /// @param smallest smallest size in bytes, at least 16
    /// @param largest largest size in bytes
    Values(int smallest, int largest) {
        this.smallest = smallest;
        this.sizes = largest - smallest + 1;
        this.pattern = new byte[OFFSETS + largest];
        new Random(1).nextBytes(pattern);
    }

    int meanSize() {
        return smallest + (sizes - 1) / 2;
    }

    byte[] value(long number, long version) {
        long bits = Key.mixed(number + version * 0x9E3779B97F4A7C15L);
        int offset = offset(bits);
        byte[] value = Arrays.copyOfRange(pattern, offset, offset + size(bits));
        Bytes.LONG.set(value, 0, number);
        Bytes.LONG.set(value, Long.BYTES, version);
        return value;
    }

    /// Whether a value is one of a key, of any version.
    boolean isOf(byte[] value, long number) {
        if (value.length < HEADER || (long) Bytes.LONG.get(value, 0) != number) {
            return false;
        }
        long bits = Key.mixed(number + (long) Bytes.LONG.get(value, Long.BYTES) * 0x9E3779B97F4A7C15L);
        int offset = offset(bits);
        return value.length == size(bits)
                && Arrays.equals(value, HEADER, value.length, pattern, offset + HEADER, offset + value.length);
    }

    private int size(long bits) {
        return smallest + (int) ((bits >>> 32) % sizes);
    }

    private static int offset(long bits) {
        return (int) bits & OFFSETS - 1;
    }
}
