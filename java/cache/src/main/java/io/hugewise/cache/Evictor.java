package io.hugewise.cache;

import io.hugewise.cache.Manifest.Figure;
import io.hugewise.cache.Manifest.Use;
import io.hugewise.cache.policy.WindowSize;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;

/// Frees segments by W-TinyLFU (Einziger et al., "Adaptive software cache management", Middleware '18) on segments,
/// which benchmarks/cache compares with other policies.
///
/// New entries are in the log of the window. Its oldest segment competes with the oldest one of the main log: of both,
/// the entries that were requested most often are kept, as many bytes as the main segment had. If few entries of the
/// window win, the main segment stays as it is.
///
/// Methods need [#lock] unless they say otherwise.
final class Evictor {
    /// Most bytes that are moved for each inserted one.
    static final double MOST_MOVED = 1.3;
    /// A main segment with a greater share of used entries is not evicted, but gets behind all others.
    private static final double MOST_USED = 0.9;
    private static final int MOST_SECOND_CHANCES = 8;
    /// With a smaller share of winners among the entries of the window, the main segment stays.
    private static final double LEAST_WINNERS = 0.05;
    /// An entry that was requested so often is replaced only by one that was requested twice more often.
    private static final int ESTABLISHED = 3;
    /// A segment with a smaller share of bytes in use is emptied before others.
    private static final double SPARSE = 0.5;
    private static final int MOST_AHEAD = 8;
    private static final int EXPIRED_AT_ONCE = 8;

    final ReentrantLock lock = new ReentrantLock();
    final Log window;
    final Log main;
    final Sketch sketch;
    final LongAdder inserted = new LongAdder();
    private final WindowSize target;
    private final Segments segments;
    private final Index index;
    private final LiveEntries live;
    private final Retired retired;
    private long moved;
    private long expected;
    private long adaptedRequests;
    private long adaptedHits;

    Evictor(Segments segments, Index index, LiveEntries live, Retired retired) {
        this.segments = segments;
        this.index = index;
        this.live = live;
        this.retired = retired;
        this.window = new Log(segments, Use.WINDOW);
        this.main = new Log(segments, Use.MAIN);
        this.sketch = new Sketch(segments);
        this.target = new WindowSize(Double.longBitsToDouble(segments.manifest.figure(Figure.WINDOW_SHARE)));
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

    /// Bytes that were moved.
    long moved() {
        return moved;
    }

    /// Adapts to the requests and hits until now, and to the number of entries that there will be.
    void adapt(long requests, long hits) {
        window.collect();
        target.requested(requests - adaptedRequests, hits - adaptedHits);
        adaptedRequests = requests;
        adaptedHits = hits;
        int used = window.size() + main.size();
        long estimate = used == 0 ? 0 : index.entries() * segments.limit() / used;
        if (estimate > expected) {
            expected = estimate;
            target.expect(estimate);
            sketch.expect(estimate);
        }
        sketch.age();
        while (isWindowLarge() && window.closed.size() > 1 && segments.free() > ahead() + 1) {
            main.closed.add(window.closed.take());
        }
    }

    private boolean isWindowLarge() {
        return window.size() > target.share() * segments.limit();
    }

    /// Empties a segment, and makes those free that no reader uses. What is kept may need as many segments as became
    /// free.
    ///
    /// @return whether calling again may free more: not if nothing is left, or a read takes longer than the patience
    boolean evict() {
        if (retired.count() == 0) {
            retireEntries();
        }
        return retired.release();
    }

    private void retireEntries() {
        collect();
        if (window.closed.isEmpty() && main.closed.isEmpty()) {
            window.close();
            main.close();
            collect();
        }
        int sparse = takeSparse();
        if (sparse >= 0) {
            clean(sparse);
        } else if (!window.closed.isEmpty() && (isWindowLarge() || main.closed.isEmpty())) {
            compete(window.closed.take());
        } else if (!main.closed.isEmpty()) {
            shrinkMain();
        }
    }

    private void collect() {
        window.collect();
        main.collect();
    }

    /// Free segments that are kept in advance.
    int ahead() {
        return Segments.RESERVED + Math.clamp(segments.limit() / 64, 1, MOST_AHEAD);
    }

    // --- Policy ------------------------------------------------------------------------------------

    private void compete(int segment) {
        var candidates = new Ranking(segments);
        live.forEach(segment, (entry, hash) -> {
            int uses = settle(entry, hash);
            boolean staysInWindow = uses > 0 && !isWindowLarge() && live.layout.size(entry) <= movable();
            if (uses >= 0 && !(staysInWindow && move(entry, hash, window))) {
                candidates.add(2L * sketch.frequency(hash), entry);
            }
        });
        retired.add(segment);
        int victims = main.closed.isEmpty() ? -1 : takeMain();
        long room = segments.size;
        if (victims >= 0) {
            long bytes = rank(victims, candidates);
            if (candidates.winners(victims) <= LEAST_WINNERS * candidates.count(victims)) {
                main.closed.addFirst(victims);
                dropAllBut(victims, candidates);
                return;
            }
            room = bytes;
            retired.add(victims);
        }
        keep(candidates, room);
    }

    /// Merges two segments of the main log to one.
    private void shrinkMain() {
        long bytes = 0;
        var all = new Ranking(segments);
        for (int i = Math.min(2, main.closed.size()); i > 0; i--) {
            int segment = takeMain();
            bytes += rank(segment, all);
            retired.add(segment);
        }
        keep(all, bytes / 2);
    }

    private int takeMain() {
        for (int chances = Math.min(main.closed.size(), MOST_SECOND_CHANCES); chances > 0; chances--) {
            int oldest = main.closed.take();
            if (live.usedShare(oldest) <= MOST_USED) {
                return oldest;
            }
            live.forEach(oldest, this::settle);
            main.closed.add(oldest);
        }
        return main.closed.take();
    }

    /// Takes the segment with the fewest bytes in use, if it is sparse and they may be moved.
    private int takeSparse() {
        IntQueue from = null;
        int place = 0;
        long least = Math.min((long) (SPARSE * segments.size), movable() + 1);
        for (IntQueue queue : new IntQueue[] {window.closed, main.closed}) {
            for (int i = 0; i < queue.size(); i++) {
                long bytes = segments.pool.field(queue.get(i), Segments.LIVE);
                if (bytes < least) {
                    least = bytes;
                    from = queue;
                    place = i;
                }
            }
        }
        if (from == null) {
            return -1;
        }
        int segment = from.get(place);
        from.remove(place);
        return segment;
    }

    private void clean(int segment) {
        var all = new Ranking(segments);
        rank(segment, all);
        retired.add(segment);
        keep(all, segments.size);
    }

    /// Adds the entries of a main segment to a ranking.
    ///
    /// @return their bytes
    private long rank(int segment, Ranking ranking) {
        long[] bytes = new long[1];
        live.forEach(segment, (entry, hash) -> {
            if (settle(entry, hash) >= 0) {
                int frequency = sketch.frequency(hash);
                ranking.add(2L * frequency + (frequency < ESTABLISHED ? 1 : 3), entry);
                bytes[0] += live.layout.size(entry);
            }
        });
        return bytes[0];
    }

    /// Adds the uses of an entry to the sketch.
    ///
    /// @return its uses, or -1 if it is not in the index
    private int settle(long entry, long hash) {
        int uses = live.takeUses(entry, hash);
        for (int i = 0; i < uses; i++) {
            sketch.increment(hash);
        }
        return uses;
    }

    private long movable() {
        return (long) (MOST_MOVED * inserted.sum()) - moved;
    }

    /// Moves an entry to a log, of which the main one takes another segment if it is full.
    private boolean move(long entry, long hash, Log log) {
        boolean isMoved = live.move(entry, hash, log);
        if (!isMoved && log == main) {
            int segment = segments.tryTake(0);
            if (segment >= 0) {
                main.open(segment);
                isMoved = live.move(entry, hash, main);
            }
        }
        moved += isMoved ? live.layout.size(entry) : 0;
        return isMoved;
    }

    /// Moves the best entries to the main log, at most so many bytes, and drops the others.
    private void keep(Ranking ranking, long bytes) {
        ranking.sort();
        long room = Math.min(bytes, movable());
        for (int i = ranking.size() - 1; i >= 0; i--) {
            long entry = ranking.entry(i);
            long hash = live.hash(entry);
            boolean isExpired = live.isExpired(entry);
            long needed = live.layout.size(entry);
            if (!isExpired && needed <= room && move(entry, hash, main)) {
                room -= needed;
            } else {
                live.drop(entry, hash, isExpired ? RemovalCause.EXPIRED : RemovalCause.SIZE);
            }
        }
    }

    private void dropAllBut(int segment, Ranking ranking) {
        for (int i = 0; i < ranking.size(); i++) {
            if (!ranking.isIn(i, segment)) {
                live.drop(ranking.entry(i), live.hash(ranking.entry(i)), RemovalCause.SIZE);
            }
        }
    }

    // --- All entries -------------------------------------------------------------------------------

    /// Frees closed segments all of whose entries have expired at a time, at most [#EXPIRED_AT_ONCE].
    ///
    /// @return whether there may be more
    boolean expire(int now) {
        int left = EXPIRED_AT_ONCE;
        for (Log log : new Log[] {window, main}) {
            log.closeIfExpired(now);
            log.collect();
            for (int place = 0; place < log.closed.size() && left > 0; place++) {
                int segment = log.closed.get(place);
                if (isExpired(segment, now)) {
                    log.closed.remove(place--);
                    live.dropAll(segment, RemovalCause.EXPIRED);
                    left--;
                }
            }
        }
        retired.release();
        return left == 0;
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
        for (Log log : new Log[] {window, main}) {
            log.close();
            log.collect();
            while (!log.closed.isEmpty()) {
                live.dropAll(log.closed.take(), RemovalCause.EXPLICIT);
            }
        }
        retired.release();
    }
}
