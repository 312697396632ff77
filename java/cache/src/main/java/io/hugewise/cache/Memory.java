package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/// Access to memory by address. It checks neither bounds nor whether the memory exists: the caller holds a pin.
final class Memory {
    static final MemorySegment ALL = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED;
    private static final VarHandle WORD = MethodHandles.insertCoordinates(ValueLayout.JAVA_LONG.varHandle(), 0, ALL);
    private static final VarHandle KEY = MethodHandles.byteArrayViewVarHandle(long[].class, java.nio.ByteOrder.nativeOrder());

    private Memory() {}

    static MemorySegment slice(long address, long size) {
        return ALL.asSlice(address, size);
    }

    static long word(long address) {
        return (long) WORD.getAcquire(address);
    }

    static void setWord(long address, long value) {
        WORD.setRelease(address, value);
    }

    static boolean replaceWord(long address, long expected, long value) {
        return WORD.compareAndSet(address, expected, value);
    }

    static long getLong(long address) {
        return ALL.get(LONG, address);
    }

    static void setLong(long address, long value) {
        ALL.set(LONG, address, value);
    }

    static int getInt(long address) {
        return ALL.get(INT, address);
    }

    static void setInt(long address, int value) {
        ALL.set(INT, address, value);
    }

    static void copy(long from, long to, long size) {
        MemorySegment.copy(ALL, from, ALL, to, size);
    }

    static void write(byte[] from, long to) {
        MemorySegment.copy(from, 0, ALL, ValueLayout.JAVA_BYTE, to, from.length);
    }

    /// Whether the memory from an address on begins with these bytes.
    static boolean startsWith(long address, byte[] bytes) {
        MemorySegment memory = ALL.asSlice(address, bytes.length);
        int i = 0;
        for (; i + Long.BYTES <= bytes.length; i += Long.BYTES) {
            if (memory.get(LONG, i) != (long) KEY.get(bytes, i)) {
                return false;
            }
        }
        for (; i < bytes.length; i++) {
            if (memory.get(ValueLayout.JAVA_BYTE, i) != bytes[i]) {
                return false;
            }
        }
        return true;
    }
}
