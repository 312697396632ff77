package io.hugewise.cache;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/// Keys of changes in their order, each with a size of 4 bytes before it, in arrays.
final class UnwrittenKeys {
    private static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.nativeOrder());
    private static final int CHUNK = 1 << 16;

    private @Nullable Chunk first;
    private @Nullable Chunk last;
    private long added;
    private long taken;

    private static final class Chunk {
        final byte[] keys;
        /// Time of the first key in nanoseconds.
        final long time;
        int end;
        int next;
        @Nullable Chunk following;

        Chunk(int size, long time) {
            keys = new byte[size];
            this.time = time;
        }
    }

    synchronized void add(byte[] key, long now) {
        int size = Integer.BYTES + key.length;
        Chunk chunk = last;
        if (chunk == null || chunk.end + size > chunk.keys.length) {
            chunk = new Chunk(Math.max(CHUNK, size), now);
            if (last == null) {
                first = chunk;
            } else {
                last.following = chunk;
            }
            last = chunk;
        }
        INT.set(chunk.keys, chunk.end, key.length);
        System.arraycopy(key, 0, chunk.keys, chunk.end + Integer.BYTES, key.length);
        chunk.end += size;
        added++;
    }

    /// Reads keys of chunks that began at a time or before, the oldest first, each once. They stay until [#drop], after which
    /// it is not used.
    final class Reader {
        private final long until;
        private @Nullable Chunk chunk;
        private int at;
        private int count;

        private Reader(long until) {
            this.until = until;
        }

        /// Reads the keys that follow.
        ///
        /// @param most number of keys
        /// @return the keys; none if there are no more
        List<byte[]> next(int most) {
            synchronized (UnwrittenKeys.this) {
                List<byte[]> keys = new ArrayList<>();
                for (Chunk left = left(); left != null && keys.size() < most; left = left()) {
                    int from = at + Integer.BYTES;
                    at = from + (int) INT.get(left.keys, at);
                    keys.add(Arrays.copyOfRange(left.keys, from, at));
                    count++;
                }
                return keys;
            }
        }

        /// The chunk of the key that is next; `null` if there is none.
        private @Nullable Chunk left() {
            Chunk now = chunk;
            if (now == null || (at == now.end && now.following != null)) {
                now = now == null ? first : now.following;
                at = now == null ? 0 : now.next;
                chunk = now;
            }
            return now != null && now.time - until <= 0 && at < now.end ? now : null;
        }

        /// Number of keys that were read, for [#drop].
        int count() {
            return count;
        }
    }

    Reader reader(long until) {
        return new Reader(until);
    }

    /// Drops the oldest keys, which were read.
    synchronized void drop(int count) {
        for (int i = 0; i < count; i++) {
            Chunk chunk = Objects.requireNonNull(first);
            chunk.next += Integer.BYTES + (int) INT.get(chunk.keys, chunk.next);
            taken++;
            if (chunk.next == chunk.end) {
                first = chunk.following;
                last = first == null ? null : last;
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
        return first == null ? 0 : now - first.time;
    }
}
