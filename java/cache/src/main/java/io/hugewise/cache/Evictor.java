package io.hugewise.cache;

import io.hugewise.cache.Manifest.Figure;
import io.hugewise.cache.Manifest.Use;
import io.hugewise.cache.policy.Rank;
import io.hugewise.cache.policy.WindowSize;
import java.util.concurrent.locks.ReentrantLock;

/// Frees segments by W-TinyLFU (Einziger et al., "Adaptive software cache management", Middleware '18) on segments,
/// which benchmarks/cache compares with other policies.
///
/// New entries are in the log of the window. Its oldest segment competes with the oldest one of the main log: of both,
/// the entries that were requested most often are kept, as many bytes as the main segment had. If few entries of the
/// window win, the main segment stays as it is. Of segments whose entries have many chunks, the worst entries are
/// dropped, and the others stay where they are. Before an entry is evicted, there is [Compaction].
///
/// Methods need [#lock] unless they say otherwise.
final class Evictor {
    /// A main segment with a greater share of used entries is not evicted, but gets behind all others.
    private static final double MOST_USED = 0.9;
    private static final int MOST_SECOND_CHANCES = 8;
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
    private final Segments segments;
    private final Chunks chunks;
    private final Index index;
    private final LiveEntries live;
    private final Retired retired;
    private long expected;
    private int defences;

    Evictor(Segments segments, Chunks chunks, Index index, LiveEntries live, Retired retired, Sketch sketch) {
        this.segments = segments;
        this.chunks = chunks;
        this.index = index;
        this.live = live;
        this.retired = retired;
        this.window = new Log(segments, Use.WINDOW);
        this.main = new Log(segments, Use.MAIN);
        this.sketch = sketch;
        this.compaction = new Compaction(segments, chunks, live, retired, window, main);
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
        while (isWindowLarge() && window.closed.size() > 1 && segments.free() > ahead() + 1) {
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
        return (retired.count() > 0 || retireEntries()) && (retired.count() == 0 || retired.release());
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
            compete(window.closed.take());
        } else if (!main.closed.isEmpty()) {
            shrinkMain();
        } else {
            return false;
        }
        return true;
    }

    private void collect() {
        window.collect();
        main.collect();
    }

    /// Free segments that are kept in advance.
    private int ahead() {
        return Segments.RESERVED + Math.clamp(segments.limit() / 64 - 1, 1, MOST_AHEAD);
    }

    /// Whether less memory is free than is kept in advance. Free chunks count as a segment at most, so entries without
    /// chunks find all others.
    boolean isShort() {
        return segments.free() * Chunks.PER_SEGMENT + Math.min(chunks.free(), Chunks.PER_SEGMENT) < ahead() * Chunks.PER_SEGMENT;
    }

    // --- Policy ------------------------------------------------------------------------------------

    private void compete(int segment) {
        var all = new Ranking(segments);
        int victims = main.closed.isEmpty() ? -1 : takeMain(all);
        if (haveManyChunks(segment, victims)) {
            competeInPlace(segment, victims, all);
            return;
        }
        boolean hasRoom = !isWindowLarge();
        live.forEach(segment, (entry, hash) -> {
            int uses = live.settle(entry, hash);
            boolean staysInWindow = hasRoom && uses > 0 && live.layout.size(entry) <= compaction.movable();
            if (uses >= 0 && !(staysInWindow && compaction.move(entry, hash, window))) {
                all.add(Rank.of(sketch.frequency(hash), false), entry);
            }
        });
        retired.add(segment);
        if (victims >= 0) {
            if (all.winners() <= Rank.LEAST_WINNERS * all.mainSize()) {
                if (++defences % Rank.MOST_DEFENCES == 0) {
                    main.closed.add(victims);
                } else {
                    main.closed.addFirst(victims);
                }
                dropCandidates(all);
                return;
            }
            retired.add(victims);
        }
        keep(all, segments.size);
    }

    private boolean haveManyChunks(int segment, int other) {
        long parts = segments.pool.field(segment, Segments.PARTS) + (other < 0 ? 0 : segments.pool.field(other, Segments.PARTS));
        return parts >= Chunks.PER_SEGMENT;
    }

    private void competeInPlace(int segment, int victims, Ranking all) {
        rank(segment, false, all);
        if (victims >= 0) {
            main.closed.add(victims);
        }
        boolean isBeaten = victims >= 0 && !dropWorst(all);
        if (isBeaten) {
            window.closed.addFirst(segment);
        } else {
            main.closed.add(segment);
        }
    }

    /// Drops the entries with the lowest ranks, until they had as many bytes as a segment.
    ///
    /// @return whether one of them was in the main log
    private boolean dropWorst(Ranking ranking) {
        ranking.sort();
        boolean isOfMain = false;
        long left = segments.size;
        for (int i = 0; i < ranking.size() && left > 0; i++) {
            isOfMain |= ranking.isMain(i);
            left -= live.bytes(ranking.entry(i));
            evict(ranking, i);
        }
        return isOfMain;
    }

    private void evict(Ranking ranking, int place) {
        long entry = ranking.entry(place);
        long hash = live.hash(entry);
        if (!live.isExpired(entry)) {
            target.evicted(hash, ranking.isMain(place));
        }
        live.drop(entry, hash);
    }

    /// Merges two segments of the main log to one.
    private void shrinkMain() {
        var all = new Ranking(segments);
        int first = takeMain(all);
        int second = main.closed.isEmpty() ? -1 : takeMain(all);
        long bytes = segments.pool.field(first, Segments.LIVE);
        boolean isInPlace = haveManyChunks(first, second);
        for (int segment : second < 0 ? new int[] {first} : new int[] {first, second}) {
            if (isInPlace) {
                main.closed.add(segment);
            } else {
                retired.add(segment);
            }
        }
        if (isInPlace) {
            dropWorst(all);
        } else {
            keep(all, second < 0 ? bytes / 2 : segments.size);
        }
    }

    /// Takes the oldest segment of the main log that may be evicted, and adds its entries to a ranking.
    ///
    /// @return its number
    private int takeMain(Ranking ranking) {
        for (int chances = Math.min(main.closed.size(), MOST_SECOND_CHANCES); ; chances--) {
            int oldest = main.closed.take();
            int before = ranking.size();
            int used = rank(oldest, true, ranking);
            if (chances == 0 || used <= MOST_USED * (ranking.size() - before)) {
                return oldest;
            }
            ranking.cut(before);
            main.closed.add(oldest);
        }
    }

    /// Adds the entries of a segment to a ranking.
    ///
    /// @return how many of them were used
    private int rank(int segment, boolean isMain, Ranking ranking) {
        int[] used = new int[1];
        live.forEach(segment, (entry, hash) -> {
            int uses = live.settle(entry, hash);
            if (uses >= 0) {
                ranking.add(Rank.of(sketch.frequency(hash), isMain), entry);
                used[0] += uses > 0 ? 1 : 0;
            }
        });
        return used[0];
    }

    /// Moves the best entries to the main log, at most so many bytes, and drops the others.
    private void keep(Ranking ranking, long bytes) {
        ranking.sort();
        long room = Math.min(bytes, compaction.movable());
        for (int i = ranking.size() - 1; i >= 0; i--) {
            long entry = ranking.entry(i);
            long hash = live.hash(entry);
            long needed = live.layout.size(entry);
            if (!live.isExpired(entry) && needed <= room && compaction.move(entry, hash, main)) {
                room -= needed;
            } else {
                evict(ranking, i);
            }
        }
    }

    private void dropCandidates(Ranking ranking) {
        for (int i = 0; i < ranking.size(); i++) {
            if (!ranking.isMain(i)) {
                evict(ranking, i);
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
