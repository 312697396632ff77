package io.hugewise.cache;

import java.util.BitSet;
import java.util.concurrent.atomic.LongAdder;

/// Moves entries and chunks, and so empties segments that lose memory: by bytes of entries that were replaced or removed,
/// or by free chunks.
///
/// Methods need the lock of evictions.
final class Compaction {
    /// Most bytes that are moved for each inserted one, unless more than [#SLACK] is dead.
    static final double MOST_MOVED = 1.3;
    /// A segment with a smaller share of bytes in use is emptied before others.
    private static final double SPARSE = 0.5;
    /// With a greater share of dead bytes, the segment that has most is emptied, instead of an eviction.
    private static final double SLACK = 0.03;

    final LongAdder inserted = new LongAdder();
    private final Segments segments;
    private final Chunks chunks;
    private final LiveEntries live;
    private final Retired retired;
    private final Emptying emptying;
    private final Log window;
    private final Log main;
    private long moved;
    /// Of these, by emptying segments with dead bytes, or with free chunks.
    private long compacted;

    Compaction(Segments segments, Chunks chunks, LiveEntries live, Retired retired, Emptying emptying, Log window, Log main) {
        this.segments = segments;
        this.chunks = chunks;
        this.live = live;
        this.retired = retired;
        this.emptying = emptying;
        this.window = window;
        this.main = main;
    }

    // --- Moving ------------------------------------------------------------------------------------

    /// Bytes that were moved.
    long moved() {
        return moved;
    }

    /// Bytes that may be moved to keep entries.
    long movable() {
        return (long) (MOST_MOVED * inserted.sum()) - (moved - compacted);
    }

    /// Moves an entry to a log, of which the main one takes another segment if it is full.
    ///
    /// @return whether there was room
    boolean move(long entry, long hash, Log log) {
        boolean isMoved = live.move(entry, hash, log);
        if (!isMoved && log == main) {
            int segment = segments.tryTake(Segments.RESERVED_FOR_OVERFLOW);
            if (segment >= 0) {
                main.open(segment);
                isMoved = live.move(entry, hash, main);
            }
        }
        moved += isMoved ? live.layout.size(entry) : 0;
        return isMoved;
    }

    // --- Emptying ----------------------------------------------------------------------------------

    /// Empties a segment of which chunks are free, if other segments have free ones for the rest. Chunks of entries that are
    /// being written cannot be moved: then another segment is chosen.
    ///
    /// @return whether chunks were moved
    boolean emptyChunks() {
        var tried = new BitSet();
        for (int segment = chunks.beginEmptying(tried); segment >= 0 && !emptyChunks(segment); segment = chunks.beginEmptying(tried)) {
            tried.set(segment);
        }
        return retired.count() > 0;
    }

    private boolean emptyChunks(int segment) {
        boolean isMoved = false;
        for (int chunk = segment * Chunks.PER_SEGMENT; chunk < (segment + 1) * Chunks.PER_SEGMENT; chunk++) {
            if (chunks.isUsed(chunk) && live.moveChunk(chunk)) {
                moved += chunks.size;
                compacted += chunks.size;
                isMoved = true;
            }
        }
        return isMoved;
    }

    /// Empties the segment with the most dead bytes, if there are many in all. Else the one with the fewest bytes in use,
    /// if it is sparse and they may be moved.
    ///
    /// @return whether there was one
    boolean emptySegment() {
        IntQueue sparse = null;
        int sparsePlace = 0;
        long least = Math.min((long) (SPARSE * segments.size), movable() + 1);
        IntQueue dead = null;
        int deadPlace = 0;
        long most = 0;
        long sum = 0;
        for (IntQueue queue : new IntQueue[] {window.closed, main.closed}) {
            for (int i = 0; i < queue.size(); i++) {
                long bytes = segments.pool.field(queue.get(i), Segments.LIVE);
                if (bytes < least) {
                    least = bytes;
                    sparse = queue;
                    sparsePlace = i;
                }
                long deadBytes = Log.dead(segments, queue.get(i));
                sum += deadBytes;
                if (deadBytes > most) {
                    most = deadBytes;
                    dead = queue;
                    deadPlace = i;
                }
            }
        }
        boolean isSlackUsed = sum > SLACK * segments.limit() * segments.size;
        IntQueue from = isSlackUsed ? dead : sparse;
        if (from == null) {
            return false;
        }
        int place = isSlackUsed ? deadPlace : sparsePlace;
        int segment = emptying.take(from, place);
        long before = moved;
        clean(segment);
        compacted += isSlackUsed ? moved - before : 0;
        return true;
    }

    private void clean(int segment) {
        live.forEach(segment, (entry, hash) -> {
            if (live.settle(entry, hash) >= 0 && (live.isExpired(entry) || !move(entry, hash, main))) {
                live.drop(entry, hash);
            }
        });
        emptying.retire(segment);
    }
}
