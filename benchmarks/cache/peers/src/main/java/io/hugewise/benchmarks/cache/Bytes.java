package io.hugewise.benchmarks.cache;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/// Access to arrays of bytes. Numbers are big-endian, so the order of keys is that of their numbers.
final class Bytes {
    static final VarHandle LONG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);

    private Bytes() {}

    /// The 16 bytes of a key.
    static byte[] of(Key key) {
        byte[] bytes = new byte[Key.BYTES];
        LONG.set(bytes, 0, key.number());
        LONG.set(bytes, Long.BYTES, key.hash());
        return bytes;
    }

    /// The key whose bytes these are.
    static Key key(byte[] bytes) {
        return new Key((long) LONG.get(bytes, 0), (long) LONG.get(bytes, Long.BYTES));
    }
}
