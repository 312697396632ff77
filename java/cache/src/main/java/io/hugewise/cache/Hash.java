package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/// A hash of 64 bits of the bytes of a key, with a seed. The folded multiplication is that of wyhash.
final class Hash {
    private static final VarHandle LONG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());
    private static final ValueLayout.OfLong WORD = ValueLayout.JAVA_LONG_UNALIGNED;
    private static final long FIRST = 0xA0761D6478BD642FL;
    private static final long SECOND = 0xE7037ED1A0B428DBL;

    private Hash() {}

    static long of(byte[] key, long seed) {
        long hash = seed ^ key.length * FIRST;
        int i = 0;
        for (; i + Long.BYTES <= key.length; i += Long.BYTES) {
            hash = mixed(hash ^ (long) LONG.get(key, i));
        }
        long rest = 0;
        for (; i < key.length; i++) {
            rest = (rest << 8) | (key[i] & 0xff);
        }
        return mixed(mixed(hash ^ rest) ^ SECOND);
    }

    /// The same hash of a key in memory.
    static long of(MemorySegment key, long seed) {
        int length = (int) key.byteSize();
        long hash = seed ^ length * FIRST;
        int i = 0;
        for (; i + Long.BYTES <= length; i += Long.BYTES) {
            hash = mixed(hash ^ key.get(WORD, i));
        }
        long rest = 0;
        for (; i < length; i++) {
            rest = (rest << 8) | (key.get(ValueLayout.JAVA_BYTE, i) & 0xff);
        }
        return mixed(mixed(hash ^ rest) ^ SECOND);
    }

    private static long mixed(long value) {
        long product = value ^ SECOND;
        return product * FIRST ^ Math.unsignedMultiplyHigh(product, FIRST);
    }
}
