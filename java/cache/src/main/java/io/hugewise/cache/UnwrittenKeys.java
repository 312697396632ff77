package io.hugewise.cache;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;

/// Keys of changes in their order, each with a size of 4 bytes before it, in arrays.
final class UnwrittenKeys {
    private static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.nativeOrder());
    private static final int CHUNK = 1 << 16;

    private final Deque<Chunk> chunks = new ArrayDeque<>();
    private long added;
    private long taken;

    private static final class Chunk {
        final byte[] keys;
        /// Time of the first key in nanoseconds.
        final long time;
        int end;
        int next;

        Chunk(int size, long time) {
            keys = new byte[size];
            this.time = time;
        }
    }

    synchronized void add(byte[] key, long now) {
        int size = Integer.BYTES + key.length;
        Chunk last = chunks.peekLast();
        if (last == null || last.end + size > last.keys.length) {
            last = new Chunk(Math.max(CHUNK, size), now);
            chunks.add(last);
        }
        INT.set(last.keys, last.end, key.length);
        System.arraycopy(key, 0, last.keys, last.end + Integer.BYTES, key.length);
        last.end += size;
        added++;
    }

    /// Takes keys, the oldest first, of chunks that began at a time or before.
    ///
    /// @param most number of keys
    synchronized void take(int most, long until, List<byte[]> to) {
        for (int i = 0; i < most; i++) {
            Chunk first = chunks.peekFirst();
            if (first == null || first.time - until > 0) {
                return;
            }
            int size = (int) INT.get(first.keys, first.next);
            int from = first.next + Integer.BYTES;
            to.add(Arrays.copyOfRange(first.keys, from, from + size));
            first.next = from + size;
            taken++;
            if (first.next == first.end) {
                chunks.removeFirst();
            }
        }
    }

    /// Number of keys that were added since the beginning.
    synchronized long added() {
        return added;
    }

    synchronized long taken() {
        return taken;
    }

    synchronized long count() {
        return added - taken;
    }

    /// Nanoseconds since the oldest key was added, or an older one; 0 if there is none.
    synchronized long age(long now) {
        Chunk first = chunks.peekFirst();
        return first == null ? 0 : now - first.time;
    }
}
