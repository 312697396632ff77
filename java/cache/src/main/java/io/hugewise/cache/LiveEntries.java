package io.hugewise.cache;

import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongUnaryOperator;

/// Entries that are in the index: moves them to other segments, and removes them from the index. Any thread may call
/// its methods.
final class LiveEntries {
    private static final int BATCH = 32;

    final Entries layout;
    final LongAdder evicted = new LongAdder();
    final LongAdder evictedBytes = new LongAdder();
    private final Segments segments;
    private final Chunks chunks;
    private final Index index;
    private final Retired retired;
    private final Sketch sketch;
    private final Clock clock;
    private final long seed;
    private final Removals removals;
    private final Leaving leaving;
    /// So that reading them is not optimised away.
    @SuppressWarnings("unused")
    private long firstWords;

    LiveEntries(Segments segments, Chunks chunks, Index index, Entries layout, Retired retired, Sketch sketch, Clock clock,
            long seed, Removals removals, Leaving leaving) {
        this.segments = segments;
        this.chunks = chunks;
        this.index = index;
        this.layout = layout;
        this.retired = retired;
        this.sketch = sketch;
        this.clock = clock;
        this.seed = seed;
        this.removals = removals;
        this.leaving = leaving;
    }

    long hash(long entry) {
        return Hash.of(layout.keyMemory(entry), seed);
    }

    interface Visitor {
        void visit(long entry, long hash);
    }

    /// Calls a function with all entries of a closed segment, also with those that are not in the index any more.
    void forEach(int segment, Visitor visitor) {
        forEach(segment, hash -> index.firstWord(hash) + sketch.frequency(hash), visitor);
    }

    /// Calls a function with all entries of a closed segment. What it needs of several entries is read before, so that a CPU
    /// waits for several cache lines at the same time.
    ///
    /// @param reader reads what is needed of a hash
    private void forEach(int segment, LongUnaryOperator reader, Visitor visitor) {
        long[] batch = new long[BATCH];
        long[] hashes = new long[BATCH];
        var cursor = new SegmentCursor(segments, layout, segment);
        for (int count = cursor.next(batch); count > 0; count = cursor.next(batch)) {
            for (int i = 0; i < count; i++) {
                hashes[i] = hash(batch[i]);
            }
            // In a loop of its own, as short as possible: more reads are under way at the same time.
            long read = 0;
            for (int i = 0; i < count; i++) {
                read += reader.applyAsLong(hashes[i]);
            }
            firstWords = read;
            for (int i = 0; i < count; i++) {
                visitor.visit(batch[i], hashes[i]);
            }
        }
    }

    /// Adds the uses of an entry to frequencies, and sets them to 0.
    ///
    /// @return its uses, or -1 if it is not in the index
    int settle(long entry, long hash) {
        if (index.isUnused(entry, hash)) {
            return 0;
        }
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

    boolean isExpired(long entry) {
        int expiry = layout.expiry(entry);
        return expiry != Clock.NEVER && Clock.isPast(expiry, clock.now());
    }

    /// Notes when an entry expires that was added to its segment.
    void expires(long entry) {
        int segment = segments.of(entry);
        long expiry = Integer.toUnsignedLong(layout.expiry(entry));
        long last = segments.pool.field(segment, Segments.LAST_EXPIRY);
        while (expiry > last && !segments.pool.compareAndSetField(segment, Segments.LAST_EXPIRY, last, expiry)) {
            last = segments.pool.field(segment, Segments.LAST_EXPIRY);
        }
    }

    /// Appends an entry to the open segment of a log, and makes the index refer to the copy.
    ///
    /// @return whether there was room
    boolean move(long entry, long hash, Log log) {
        long size = layout.size(entry);
        long copy = log.tryAppend(size, layout.parts(entry));
        if (copy == 0) {
            return false;
        }
        try {
            ReentrantLock stripe = index.lock(hash);
            stripe.lock();
            try {
                // Changes of an entry under the lock must not be lost.
                Memory.copy(entry, copy, size);
                long at = index.place(entry, hash);
                if (at != 0) {
                    index.replace(at, copy, hash, 0);
                    segments.addLive(copy, size);
                    expires(copy);
                }
            } finally {
                stripe.unlock();
            }
        } finally {
            log.written(copy);
        }
        return true;
    }

    /// Moves a used chunk to another one.
    ///
    /// @return whether it was moved: not if the index does not have its entry, or no other is free
    boolean moveChunk(int chunk) {
        int copy = chunks.tryTake(Integer.MAX_VALUE);
        if (copy < 0) {
            return false;
        }
        // Until the value is written, the hash and the number of the part may be any.
        long hash = chunks.hash(chunk);
        boolean isMoved = false;
        try {
            isMoved = moveChunk(chunk, hash, copy);
        } finally {
            if (!isMoved) {
                chunks.give(copy);
            }
        }
        if (isMoved) {
            retired.addChunk(chunk);
        }
        return isMoved;
    }

    private boolean moveChunk(int chunk, long hash, int copy) {
        ReentrantLock stripe = index.lock(hash);
        stripe.lock();
        try {
            int part = chunks.part(chunk);
            long owner = index.find(hash, chunk, (entry, number) -> layout.hasPart(entry, part, number));
            if (owner != 0) {
                Memory.copy(chunks.address(chunk), chunks.address(copy), chunks.size);
                layout.setPart(owner, part, copy);
            }
            return owner != 0;
        } finally {
            stripe.unlock();
        }
    }

    /// Bytes of an entry, with its chunks.
    long bytes(long entry) {
        return layout.size(entry) + (long) layout.parts(entry) * chunks.size;
    }

    /// Evicts an entry, if it is in the index.
    void drop(long entry, long hash) {
        drop(entry, hash, isExpired(entry) ? RemovalCause.EXPIRED : RemovalCause.SIZE);
    }

    private void drop(long entry, long hash, RemovalCause cause) {
        if (remove(entry, hash)) {
            dropped(entry);
            count(cause, 1, bytes(entry));
            removals.removed(entry, cause);
        }
    }

    /// Removes an entry from the index.
    ///
    /// @return whether it was there
    private boolean remove(long entry, long hash) {
        ReentrantLock stripe = index.lock(hash);
        stripe.lock();
        try {
            long at = index.place(entry, hash);
            if (at == 0) {
                return false;
            }
            removals.leaving(entry, hash);
            leaving.leaving(entry, hash);
            index.remove(at, hash);
            return true;
        } finally {
            stripe.unlock();
        }
    }

    private void count(RemovalCause cause, long entries, long bytes) {
        if (cause.wasEvicted()) {
            evicted.add(entries);
            evictedBytes.add(bytes);
        }
    }

    /// Retires the parts of an entry that is not in the index any more.
    void dropped(long entry) {
        segments.addLive(entry, -layout.size(entry));
        retireParts(entry);
    }

    private void retireParts(long entry) {
        for (int i = layout.parts(entry) - 1; i >= 0; i--) {
            retired.addChunk(layout.part(entry, i));
        }
    }

    /// Removes all entries of a closed segment.
    void dropAll(int segment, RemovalCause cause) {
        long[] dropped = new long[2];
        forEach(segment, index::firstWord, (entry, hash) -> {
            if (remove(entry, hash)) {
                retireParts(entry);
                dropped[0]++;
                dropped[1] += bytes(entry);
                removals.removed(entry, cause);
            }
        });
        count(cause, dropped[0], dropped[1]);
    }
}
