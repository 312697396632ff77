package io.hugewise.cache;

import io.hugewise.cache.policy.WindowSize;
import java.util.Arrays;
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
    private static final int RANK_SHIFT = 48;
    private static final int MOST_AHEAD = 8;

    final ReentrantLock lock = new ReentrantLock();
    final Log window;
    final Log main;
    final Sketch sketch;
    final LongAdder inserted = new LongAdder();
    final LongAdder evicted = new LongAdder();
    final LongAdder evictedBytes = new LongAdder();
    private final WindowSize target = new WindowSize();
    private final Segments segments;
    private final Index index;
    private final Entries entries;
    private final Pins pins;
    private final Clock clock;
    private final long seed;
    private final Removals removals;
    /// Segments without entries that are in the index, which readers may still use.
    private final IntQueue retired = new IntQueue();
    private long moved;
    private long expected;

    Evictor(Segments segments, Index index, Entries entries, Pins pins, Clock clock, long seed, Removals removals) {
        this.segments = segments;
        this.index = index;
        this.entries = entries;
        this.pins = pins;
        this.clock = clock;
        this.seed = seed;
        this.removals = removals;
        this.window = new Log(segments);
        this.main = new Log(segments);
        this.sketch = new Sketch(segments);
    }

    /// Bytes that were moved.
    long moved() {
        return moved;
    }

    /// Adapts to the requests since the last call, and to the number of entries that there will be.
    void adapt(long requests, long hits) {
        target.requested(requests, hits);
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
        if (retiredCount() == 0) {
            retireEntries();
        }
        return release();
    }

    private void retireEntries() {
        if (window.closed.isEmpty() && main.closed.isEmpty()) {
            window.close();
            main.close();
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

    /// Free segments that are kept in advance.
    int ahead() {
        return Segments.RESERVED + Math.clamp(segments.limit() / 64, 1, MOST_AHEAD);
    }

    /// Makes retired segments free when no reader uses them.
    ///
    /// @return whether there were some, and they are free now
    boolean release() {
        int count = retiredCount();
        if (count == 0 || !pins.await(Pins.patience())) {
            return false;
        }
        for (int i = 0; i < count; i++) {
            synchronized (retired) {
                segments.release(retired.take());
            }
        }
        return true;
    }

    private int retiredCount() {
        synchronized (retired) {
            return retired.size();
        }
    }

    /// Makes a segment free later, when no reader uses it. Does not need the lock.
    void retire(int segment) {
        synchronized (retired) {
            retired.add(segment);
        }
    }

    // --- Policy ------------------------------------------------------------------------------------

    private void compete(int segment) {
        var candidates = new Ranking();
        for (long entry = segments.address(segment), end = entry + Log.end(segments, segment); entry < end; entry += entries.size(entry)) {
            long hash = hash(entry);
            int uses = settle(entry, hash);
            boolean staysInWindow = uses > 0 && !isWindowLarge() && isMovable(entry);
            if (uses >= 0 && !(staysInWindow && move(entry, hash, window))) {
                candidates.add(2L * sketch.frequency(hash), entry);
            }
        }
        retire(segment);
        int victims = main.closed.isEmpty() ? -1 : takeMain();
        long room = segments.size;
        if (victims >= 0) {
            long bytes = rank(victims, candidates);
            if (candidates.winners(segments, victims) <= LEAST_WINNERS * candidates.count(segments, victims)) {
                main.closed.addFirst(victims);
                candidates.dropAllBut(segments, victims);
                return;
            }
            room = bytes;
            retire(victims);
        }
        candidates.keep(room);
    }

    /// Merges two segments of the main log to one.
    private void shrinkMain() {
        long bytes = 0;
        var all = new Ranking();
        for (int i = Math.min(2, main.closed.size()); i > 0; i--) {
            int segment = takeMain();
            bytes += rank(segment, all);
            retire(segment);
        }
        all.keep(bytes / 2);
    }

    private int takeMain() {
        for (int chances = Math.min(main.closed.size(), MOST_SECOND_CHANCES); chances > 0; chances--) {
            int oldest = main.closed.take();
            if (usedShare(oldest) <= MOST_USED) {
                return oldest;
            }
            long entry = segments.address(oldest);
            for (long end = entry + Log.end(segments, oldest); entry < end; entry += entries.size(entry)) {
                settle(entry, hash(entry));
            }
            main.closed.add(oldest);
        }
        return main.closed.take();
    }

    private double usedShare(int segment) {
        int used = 0;
        int live = 0;
        for (long entry = segments.address(segment), end = entry + Log.end(segments, segment); entry < end; entry += entries.size(entry)) {
            long at = index.place(entry, hash(entry));
            live += at != 0 ? 1 : 0;
            used += at != 0 && Index.uses(Memory.word(at)) > 0 ? 1 : 0;
        }
        return live == 0 ? 0 : (double) used / live;
    }

    /// Takes the segment with the fewest bytes in use, if it is sparse and they may be moved.
    private int takeSparse() {
        IntQueue from = null;
        int place = 0;
        long least = Math.min((long) (SPARSE * segments.size), movable() + 1);
        for (IntQueue queue : new IntQueue[] {window.closed, main.closed}) {
            for (int i = 0; i < queue.size(); i++) {
                long live = segments.pool.field(queue.get(i), Segments.LIVE);
                if (live < least) {
                    least = live;
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
        var all = new Ranking();
        rank(segment, all);
        retire(segment);
        all.keep(segments.size);
    }

    /// Adds the entries of a main segment to a ranking.
    ///
    /// @return their bytes
    private long rank(int segment, Ranking ranking) {
        long bytes = 0;
        for (long entry = segments.address(segment), end = entry + Log.end(segments, segment); entry < end; entry += entries.size(entry)) {
            long hash = hash(entry);
            if (settle(entry, hash) >= 0) {
                int frequency = sketch.frequency(hash);
                ranking.add(2L * frequency + (frequency < ESTABLISHED ? 1 : 3), entry);
                bytes += entries.size(entry);
            }
        }
        return bytes;
    }

    /// Adds the uses of an entry to the sketch.
    ///
    /// @return its uses, or -1 if it is not in the index
    private int settle(long entry, long hash) {
        int uses;
        ReentrantLock stripe = index.lock(hash);
        stripe.lock();
        try {
            long at = index.place(entry, hash);
            uses = at == 0 ? -1 : Index.takeUses(at);
        } finally {
            stripe.unlock();
        }
        for (int i = 0; i < uses; i++) {
            sketch.increment(hash);
        }
        return uses;
    }

    private long hash(long entry) {
        return Hash.of(entries.keyMemory(entry), seed);
    }

    private long movable() {
        return (long) (MOST_MOVED * inserted.sum()) - moved;
    }

    private boolean isMovable(long entry) {
        return entries.size(entry) <= movable();
    }

    /// Entries by rank.
    private final class Ranking {
        private long[] ranked = new long[256];
        private int size;

        void add(long rank, long entry) {
            ranked = size == ranked.length ? Arrays.copyOf(ranked, 2 * size) : ranked;
            ranked[size++] = rank << RANK_SHIFT | entry - segments.base;
        }

        private long entry(int place) {
            return segments.base + (ranked[place] & (1L << RANK_SHIFT) - 1);
        }

        int count(Segments of, int segment) {
            int count = 0;
            for (int i = 0; i < size; i++) {
                count += of.of(entry(i)) == segment ? 1 : 0;
            }
            return count;
        }

        /// Number of entries of other segments among the best, as many as the segment has.
        int winners(Segments of, int segment) {
            int places = count(of, segment);
            Arrays.sort(ranked, 0, size);
            int winners = 0;
            for (int i = size - 1; i >= size - places; i--) {
                winners += of.of(entry(i)) == segment ? 0 : 1;
            }
            return winners;
        }

        void dropAllBut(Segments of, int segment) {
            for (int i = 0; i < size; i++) {
                if (of.of(entry(i)) != segment) {
                    drop(entry(i), RemovalCause.SIZE);
                }
            }
        }

        /// Moves the best entries to the main log, at most so many bytes, and drops the others.
        void keep(long bytes) {
            Arrays.sort(ranked, 0, size);
            long room = Math.min(bytes, movable());
            int now = clock.now();
            for (int i = size - 1; i >= 0; i--) {
                long entry = entry(i);
                boolean isExpired = Clock.isPast(entries.expiry(entry), now);
                long needed = entries.size(entry);
                if (!isExpired && needed <= room && move(entry, hash(entry), main)) {
                    room -= needed;
                } else {
                    drop(entry, isExpired ? RemovalCause.EXPIRED : RemovalCause.SIZE);
                }
            }
        }
    }

    // --- Entries -----------------------------------------------------------------------------------

    /// Appends an entry to a log, and makes the index refer to the copy.
    ///
    /// @return whether there was room
    private boolean move(long entry, long hash, Log log) {
        long size = entries.size(entry);
        long copy = log.tryAppend(size);
        if (copy == 0 && log == main) {
            int segment = segments.tryTake(0);
            if (segment < 0) {
                return false;
            }
            main.close();
            main.open(segment);
            copy = main.tryAppend(size);
        }
        if (copy == 0) {
            return false;
        }
        Memory.copy(entry, copy, size);
        moved += size;
        ReentrantLock stripe = index.lock(hash);
        stripe.lock();
        try {
            long at = index.place(entry, hash);
            if (at != 0) {
                index.replace(at, copy, hash, 0);
                segments.addLive(copy, size);
                expires(copy);
            }
        } finally {
            stripe.unlock();
        }
        log.written(copy);
        if (entries.isLarge(copy)) {
            log.ownsParts(entries.segments(entries.valueSize(copy)));
        }
        return true;
    }

    /// Notes when an entry expires that was added to its segment. Does not need the lock.
    void expires(long entry) {
        int segment = segments.of(entry);
        long expiry = Integer.toUnsignedLong(entries.expiry(entry));
        long last = segments.pool.field(segment, Segments.LAST_EXPIRY);
        while (expiry > last && !segments.pool.compareAndSetField(segment, Segments.LAST_EXPIRY, last, expiry)) {
            last = segments.pool.field(segment, Segments.LAST_EXPIRY);
        }
    }

    private void drop(long entry, RemovalCause cause) {
        long hash = hash(entry);
        ReentrantLock stripe = index.lock(hash);
        stripe.lock();
        try {
            long at = index.place(entry, hash);
            if (at == 0) {
                return;
            }
            index.remove(at, hash);
        } finally {
            stripe.unlock();
        }
        dropped(entry);
        if (cause.wasEvicted()) {
            evicted.increment();
            evictedBytes.add(entries.size(entry));
        }
        removals.removed(entry, cause);
    }

    /// Retires the parts of an entry that is not in the index any more. Does not need the lock.
    void dropped(long entry) {
        segments.addLive(entry, -entries.size(entry));
        if (entries.isLarge(entry)) {
            for (int i = entries.segments(entries.valueSize(entry)) - 1; i >= 0; i--) {
                retire(entries.part(entry, i));
            }
        }
    }

    /// Frees the closed segments all of whose entries have expired.
    void expire() {
        int now = clock.now();
        for (Log log : new Log[] {window, main}) {
            log.closeIfExpired(now);
            for (int i = log.closed.size(); i > 0; i--) {
                int segment = log.closed.take();
                Log.end(segments, segment);
                if (Clock.isPast((int) segments.pool.field(segment, Segments.LAST_EXPIRY), now)) {
                    dropAll(segment, RemovalCause.EXPIRED);
                } else {
                    log.closed.add(segment);
                }
            }
        }
        release();
    }

    /// Removes all entries.
    void clear() {
        for (Log log : new Log[] {window, main}) {
            log.close();
            while (!log.closed.isEmpty()) {
                dropAll(log.closed.take(), RemovalCause.EXPLICIT);
            }
        }
        release();
    }

    private void dropAll(int segment, RemovalCause cause) {
        long entry = segments.address(segment);
        for (long end = entry + Log.end(segments, segment); entry < end; entry += entries.size(entry)) {
            drop(entry, cause);
        }
        retire(segment);
    }
}
