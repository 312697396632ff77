package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/// Access to memory by address. It checks neither bounds nor whether the memory exists: the caller holds a pin.
final class Memory {
    static final MemorySegment ALL = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);
    private static final VarHandle WORD = of(ValueLayout.JAVA_LONG);
    private static final VarHandle LONG = of(ValueLayout.JAVA_LONG_UNALIGNED);
    private static final VarHandle INT = of(ValueLayout.JAVA_INT_UNALIGNED);
    private static final VarHandle BYTE = of(ValueLayout.JAVA_BYTE);
    private static final VarHandle KEY = MethodHandles.byteArrayViewVarHandle(long[].class, java.nio.ByteOrder.nativeOrder());

    private Memory() {}

    /// Values of a layout, by address. Compilers inline such a handle in deeper calls than the methods of a segment.
    private static VarHandle of(ValueLayout layout) {
        return MethodHandles.insertCoordinates(layout.varHandle(), 0, ALL);
    }

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
        return (long) LONG.get(address);
    }

    static void setLong(long address, long value) {
        LONG.set(address, value);
    }

    static int getInt(long address) {
        return (int) INT.get(address);
    }

    static void setInt(long address, int value) {
        INT.set(address, value);
    }

    static void copy(long from, long to, long size) {
        MemorySegment.copy(ALL, from, ALL, to, size);
    }

    static void write(byte[] from, long to) {
        MemorySegment.copy(from, 0, ALL, ValueLayout.JAVA_BYTE, to, from.length);
    }

    /// Whether the memory from an address on begins with these bytes.
    static boolean startsWith(long address, byte[] bytes) {
        int i = 0;
        for (; i + Long.BYTES <= bytes.length; i += Long.BYTES) {
            if (getLong(address + i) != (long) KEY.get(bytes, i)) {
                return false;
            }
        }
        for (; i < bytes.length; i++) {
            if ((byte) BYTE.get(address + i) != bytes[i]) {
                return false;
            }
        }
        return true;
    }
}
