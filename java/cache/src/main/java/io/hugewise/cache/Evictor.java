package io.hugewise.cache;

import io.hugewise.cache.Manifest.Figure;
import io.hugewise.cache.Manifest.Use;
import io.hugewise.cache.policy.WindowSize;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/// Frees segments. New entries are in the log of the window, of which the oldest segment is the first to go if the window
/// is large, and those that [Admission] chooses are in the main log. Before an entry is evicted, there is [Compaction].
///
/// Methods need [#lock] unless they say otherwise.
final class Evictor {
    /// A smaller share of the entries that were expected is a reason to expect fewer.
    private static final double FEWER = 0.9;
    /// Buckets of the index that are merged at once.
    private static final int MERGES = 512;
    private static final int MOST_AHEAD = 7;
    private static final int EXPIRED_AT_ONCE = 8;

    final ReentrantLock lock = new ReentrantLock();
    final Log window;
    final Log main;
    final Sketch sketch;
    final Compaction compaction;
    private final WindowSize target;
    private final Admission admission;
    private final Emptying emptying;
    private final Segments segments;
    private final Chunks chunks;
    private final Index index;
    private final LiveEntries live;
    private final Retired retired;
    private long expected;

    Evictor(Segments segments, Chunks chunks, Index index, LiveEntries live, Retired retired, Sketch sketch) {
        this.segments = segments;
        this.chunks = chunks;
        this.index = index;
        this.live = live;
        this.retired = retired;
        this.window = new Log(segments, Use.WINDOW);
        this.main = new Log(segments, Use.MAIN);
        this.sketch = sketch;
        this.emptying = new Emptying(segments, retired);
        this.compaction = new Compaction(segments, chunks, live, retired, emptying, window, main);
        this.target = new WindowSize(Double.longBitsToDouble(segments.manifest.figure(Figure.WINDOW_SHARE)));
        this.admission = new Admission(segments, live, emptying, sketch, target, compaction, window, main);
    }

    /// Writes to the manifest what it does not have yet, when no thread reads or writes any more.
    ///
    /// @return whether all entries are written
    boolean save() {
        retired.releaseAll();
        segments.manifest.setFigure(Figure.WINDOW_SHARE, Double.doubleToLongBits(target.share()));
        boolean isWritten = window.save();
        return main.save() && isWritten;
    }

    /// Counts a request of a key whose entry is added.
    void missed(long hash) {
        sketch.increment(hash);
        target.missed(hash);
    }

    /// Adapts to the number of entries that there will be.
    void adapt() {
        window.collect();
        long used = segments.used();
        long estimate = used == 0 ? 0 : index.entries() * segments.limit() / used;
        if (estimate > expected || estimate < FEWER * expected) {
            expected = estimate;
            target.expect(estimate);
            sketch.expect(estimate, retired::add);
        }
        sketch.age();
        while (isWindowLarge() && window.closed.size() > 1 && segments.free() > Segments.RESERVED + ahead() + 1) {
            main.closed.add(window.closed.take());
        }
    }

    /// Makes the index smaller if there are few entries.
    ///
    /// @return whether it may become smaller still
    boolean shrinkIndex() {
        boolean isMore = index.shrinkIfSparse(MERGES, retired::add);
        // Memory that readers may use is made free at the next time.
        if (retired.count() > 0) {
            retired.release();
        }
        return isMore;
    }

    private boolean isWindowLarge() {
        return window.weight() > target.share() * segments.limit();
    }

    /// Empties a segment, or drops entries, and makes memory free that no reader uses. What is kept may need as many
    /// segments as became free.
    ///
    /// @return whether calling again may free more: not if nothing is left, or a read takes longer than the patience
    boolean evict() {
        return (retired.count() > 0 || safely(this::retireEntries)) && (retired.count() == 0 || retired.release());
    }

    /// Runs a task that takes segments from their logs. If an error is thrown, such as one of the heap's memory, the segments
    /// are returned.
    private boolean safely(BooleanSupplier task) {
        boolean isDone = false;
        try {
            boolean result = task.getAsBoolean();
            isDone = true;
            return result;
        } finally {
            if (!isDone) {
                emptying.returnAll(main.closed);
            }
        }
    }

    private boolean retireEntries() {
        collect();
        if (compaction.emptyChunks()) {
            return true;
        }
        if (window.closed.isEmpty() && main.closed.isEmpty()) {
            window.close();
            main.close();
            collect();
        } else if (compaction.emptySegment()) {
            return true;
        }
        if (!window.closed.isEmpty() && (main.closed.isEmpty() || isWindowLarge())) {
            admission.compete(emptying.take(window.closed), !isWindowLarge());
        } else if (!main.closed.isEmpty()) {
            admission.shrinkMain();
        } else {
            return false;
        }
        return true;
    }

    private void collect() {
        window.collect();
        main.collect();
    }

    /// Free segments that are kept in advance, beside the reserved ones.
    private int ahead() {
        return Math.clamp(segments.limit() / 64 - 1, 1, MOST_AHEAD);
    }

    /// Whether less memory is free than is kept in advance.
    boolean isShort() {
        return hasFewer(Segments.RESERVED + ahead());
    }

    /// Whether so little of it is left that a thread has to free more. Not as soon as it is short: to wake a thread takes as
    /// long as many puts.
    boolean isLow() {
        return hasFewer(Segments.RESERVED + (ahead() + 1) / 2);
    }

    /// Whether fewer segments are free. Free chunks count as one at most, so entries without chunks find all others.
    private boolean hasFewer(int count) {
        return segments.free() * Chunks.PER_SEGMENT + Math.min(chunks.free(), Chunks.PER_SEGMENT) < count * Chunks.PER_SEGMENT;
    }

    // --- All entries -------------------------------------------------------------------------------

    /// Frees closed segments all of whose entries have expired at a time, at most [#EXPIRED_AT_ONCE].
    ///
    /// @return whether there may be more
    boolean expire(int now) {
        return safely(() -> expireSegments(now));
    }

    private boolean expireSegments(int now) {
        int left = EXPIRED_AT_ONCE;
        for (Log log : new Log[] {window, main}) {
            log.closeIfExpired(now);
            log.collect();
            for (int place = 0; place < log.closed.size() && left > 0; place++) {
                int segment = log.closed.get(place);
                if (isExpired(segment, now)) {
                    emptying.take(log.closed, place--);
                    live.dropAll(segment, RemovalCause.EXPIRED);
                    emptying.retire(segment);
                    left--;
                }
            }
        }
        retired.release();
        return left == 0;
    }

    /// The next time at which all entries of a segment have expired; [Clock#NEVER] if they do not.
    int nextExpiry() {
        int next = Clock.NEVER;
        for (Log log : new Log[] {window, main}) {
            next = Clock.earlier(next, log.nextExpiry());
        }
        return next;
    }

    private boolean isExpired(int segment, int now) {
        if (!Clock.isPast((int) segments.pool.field(segment, Segments.LAST_EXPIRY), now)) {
            return false;
        }
        // An entry that is being written may expire later.
        Log.end(segments, segment);
        return Clock.isPast((int) segments.pool.field(segment, Segments.LAST_EXPIRY), now);
    }

    /// Removes all entries.
    void clear() {
        safely(this::dropEntries);
        retired.release();
    }

    private boolean dropEntries() {
        for (Log log : new Log[] {window, main}) {
            log.close();
            log.collect();
            while (!log.closed.isEmpty()) {
                int segment = emptying.take(log.closed);
                live.dropAll(segment, RemovalCause.EXPLICIT);
                emptying.retire(segment);
            }
        }
        return true;
    }
}
