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

    /// Reads keys, the oldest first, of chunks that began at a time or before. They stay until [#drop].
    ///
    /// @param skipped number of the oldest keys that are not read
    /// @param most number of keys
    synchronized void read(int skipped, int most, long until, List<byte[]> to) {
        int left = skipped;
        for (Chunk chunk : chunks) {
            if (chunk.time - until > 0) {
                return;
            }
            for (int at = chunk.next; at < chunk.end; left--) {
                int size = (int) INT.get(chunk.keys, at);
                int from = at + Integer.BYTES;
                at = from + size;
                if (left <= 0) {
                    if (to.size() == most) {
                        return;
                    }
                    to.add(Arrays.copyOfRange(chunk.keys, from, at));
                }
            }
        }
    }

    /// Drops the oldest keys, which were read.
    synchronized void drop(int count) {
        for (int i = 0; i < count; i++) {
            Chunk first = chunks.getFirst();
            first.next += Integer.BYTES + (int) INT.get(first.keys, first.next);
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
