package io.hugewise.cache;

import io.hugewise.memory.internal.Pause;
import io.hugewise.cache.Manifest.Use;

/// Segments that entries are appended to, one after the other. Any thread may append, open and close segments; what
/// uses [#closed] needs the lock of evictions.
final class Log {
    private static final long CLOSED = Long.MIN_VALUE;
    private static final long WRITER = 1L << 32;
    private static final long POSITION = WRITER - 1;
    private static final long WRITERS = ~CLOSED & ~POSITION;
    private static final int NONE = -1;
    private static final long SLEEP_NANOS = 10_000;

    /// Closed segments, the oldest first, as of the last call of [#collect].
    final IntQueue closed;
    /// Segments that were closed since.
    private final IntQueue arriving;
    private final Segments segments;
    private final Use use;
    private volatile int active = NONE;
    private long opened;

    /// Has the segments that the manifest has for this use.
    Log(Segments segments, Use use) {
        this.segments = segments;
        this.use = use;
        this.closed = new IntQueue(segments.pool.count());
        this.arriving = new IntQueue(segments.pool.count());
        for (int segment : segments.withUse(use)) {
            closed.add(segment);
            opened = segments.manifest.order(segment) + 1;
        }
    }

    /// Appends room for an entry, which must be [#written] then.
    ///
    /// @param parts chunks that it has
    /// @return its address, or 0 if it needs another segment
    long tryAppend(long size, int parts) {
        int segment = active;
        while (segment != NONE) {
            long state = segments.pool.field(segment, Segments.STATE);
            long position = state & POSITION;
            if (state < 0 || position + size > segments.size) {
                return 0;
            }
            if (segments.pool.compareAndSetField(segment, Segments.STATE, state, state + size + WRITER)) {
                segments.starts.appended(segment, position, position + size);
                if (parts > 0) {
                    segments.pool.addToField(segment, Segments.PARTS, parts);
                }
                return segments.address(segment) + position;
            }
        }
        return 0;
    }

    /// Ends the writing of an entry.
    void written(long entry) {
        segments.pool.addToField(segments.of(entry), Segments.STATE, -WRITER);
    }

    /// Number of segments.
    synchronized int size() {
        return closed.size() + arriving.size() + (active == NONE ? 0 : 1);
    }

    /// Number of segments, and of those that all chunks of their entries need.
    synchronized double weight() {
        long parts = active == NONE ? 0 : segments.pool.field(active, Segments.PARTS);
        for (IntQueue queue : new IntQueue[] {closed, arriving}) {
            for (int i = 0; i < queue.size(); i++) {
                parts += segments.pool.field(queue.get(i), Segments.PARTS);
            }
        }
        return size() + (double) parts / Chunks.PER_SEGMENT;
    }

    /// Whether an entry can be appended to the open segment.
    boolean hasRoom(long size) {
        int segment = active;
        long state = segment == NONE ? CLOSED : segments.pool.field(segment, Segments.STATE);
        return state >= 0 && (state & POSITION) + size <= segments.size;
    }

    /// Makes an empty segment the one to append to.
    synchronized void open(int segment) {
        close();
        segments.pool.setField(segment, Segments.LIVE, 0);
        segments.pool.setField(segment, Segments.LAST_EXPIRY, 0);
        segments.pool.setField(segment, Segments.PARTS, 0);
        segments.starts.clear(segment);
        // Set last: from here on, a thread that still has the segment from an earlier use may append to it, too.
        segments.pool.setField(segment, Segments.STATE, 0);
        segments.manifest.setUse(segment, use, opened++);
        active = segment;
    }

    /// Closes the segment that is appended to, if there is one.
    synchronized void close() {
        int segment = active;
        if (segment == NONE) {
            return;
        }
        active = NONE;
        segments.pool.addToField(segment, Segments.STATE, CLOSED);
        arriving.add(segment);
    }

    /// Adds the segments that were closed to [#closed].
    synchronized void collect() {
        while (!arriving.isEmpty()) {
            closed.add(arriving.take());
        }
    }

    /// Closes the segment that is appended to if all its entries have expired.
    synchronized void closeIfExpired(int now) {
        int segment = active;
        int last = segment == NONE ? 0 : lastExpiry(segment);
        if (last != 0 && Clock.isPast(last, now)) {
            close();
        }
    }

    /// The next time at which all entries of a segment have expired, as of now; [Clock#NEVER] if they do not.
    synchronized int nextExpiry() {
        int next = Clock.NEVER;
        for (int i = 0; i < closed.size(); i++) {
            next = Clock.earlier(next, lastExpiry(closed.get(i)));
        }
        for (int i = 0; i < arriving.size(); i++) {
            next = Clock.earlier(next, lastExpiry(arriving.get(i)));
        }
        int last = active == NONE ? 0 : lastExpiry(active);
        return last == 0 ? next : Clock.earlier(next, last);
    }

    private int lastExpiry(int segment) {
        return (int) segments.pool.field(segment, Segments.LAST_EXPIRY);
    }

    /// Closes the segment that is appended to, and writes the order of all to the manifest.
    ///
    /// @return whether all entries are written
    boolean save() {
        close();
        collect();
        boolean isWritten = true;
        for (int i = 0; i < closed.size(); i++) {
            segments.manifest.setUse(closed.get(i), use, i);
            isWritten &= (segments.pool.field(closed.get(i), Segments.STATE) & WRITERS) == 0;
        }
        return isWritten;
    }

    /// State of a closed segment with so many bytes of entries.
    static long closedAt(long position) {
        return CLOSED | position;
    }

    /// Bytes of a closed segment that were appended and are not those of entries in the index.
    static long dead(Segments segments, int segment) {
        return (segments.pool.field(segment, Segments.STATE) & POSITION) - segments.pool.field(segment, Segments.LIVE);
    }

    /// Bytes of a closed segment that have entries, when all of them are written.
    static long end(Segments segments, int segment) {
        while (true) {
            long state = segments.pool.field(segment, Segments.STATE);
            if ((state & WRITERS) == 0) {
                return state & POSITION;
            }
            Pause.nanos(SLEEP_NANOS);
        }
    }
}
