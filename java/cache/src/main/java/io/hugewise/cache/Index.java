package io.hugewise.cache;

import io.hugewise.cache.Manifest.Figure;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.IntConsumer;

/// A hash table of entries outside of the heap, which grows by one bucket at a time (linear hashing, Litwin, 1980).
///
/// Reading takes no lock. Writers hold the lock of the stripe that the hash belongs to, which is that of a bucket and
/// of the one that it is split into. While they move words from one place to another, the stripe's version is odd:
/// a reader that then misses an entry reads again, at last with the lock. The writer may be a virtual thread without a
/// carrier, so readers must not keep all carriers.
final class Index {
    static final int STRIPES = 256;
    /// Entries for each bucket at which the table grows.
    private static final int LOAD = 6;
    /// Entries for each bucket at which the table shrinks.
    private static final int LEAST_LOAD = 5;
    static final int LONGEST_CHAIN = 1 << 10;
    /// Reads without the lock that find the version changed, before one with the lock.
    private static final int SPINS = 64;

    private final Segments segments;
    private final Buckets buckets;
    private final ReentrantLock[] locks = new ReentrantLock[STRIPES];
    private final AtomicIntegerArray versions = new AtomicIntegerArray(STRIPES);
    private final Counter count = new Counter();
    private final ReentrantLock growing = new ReentrantLock();
    /// Of the bucket that is split or merged, by the holder of [#growing].
    private final Chain chain;
    private final Condition<byte[]> ofKey;

    /// Has the entries that the manifest has, after a check if they were not all written.
    Index(Segments segments, Entries layout) {
        this.segments = segments;
        this.buckets = new Buckets(segments);
        this.chain = new Chain(buckets);
        this.ofKey = layout::isOf;
        Arrays.setAll(locks, _ -> new ReentrantLock());
        boolean isOpen = segments.manifest.state() == Manifest.State.OPEN;
        count.add(isOpen ? new Recovery(segments, this, buckets, layout).run() : segments.manifest.figure(Figure.ENTRIES));
    }

    /// Writes to the manifest what it does not have yet. No thread uses the index any more.
    void save() {
        segments.manifest.setFigure(Figure.ENTRIES, count.sum());
        buckets.save();
    }

    private static int stripe(long hash) {
        return (int) hash & STRIPES - 1;
    }

    ReentrantLock lock(long hash) {
        return locks[stripe(hash)];
    }

    long entries() {
        return count.sum();
    }

    /// Bytes of the table.
    long bytes() {
        return buckets.bytes();
    }

    private long word(long entry, long hash) {
        return IndexWord.of(entry - segments.base, hash);
    }

    /// Address of the entry that a word refers to.
    private long address(long word) {
        return segments.base + IndexWord.offset(word);
    }

    // --- Reading -----------------------------------------------------------------------------------

    /// Finds the entry of a key, and counts a use of it. The caller holds a pin.
    ///
    /// @return the address of the entry, or 0 if the key is not there
    long find(byte[] key, long hash, Entries entries, boolean isUse) {
        int stripe = stripe(hash);
        for (int spins = 0; spins < SPINS; spins++) {
            int version = versions.get(stripe);
            long found = search(key, hash, entries, isUse);
            if (found != 0 || ((version & 1) == 0 && versions.get(stripe) == version)) {
                return found;
            }
            Thread.onSpinWait();
        }
        locks[stripe].lock();
        try {
            return search(key, hash, entries, isUse);
        } finally {
            locks[stripe].unlock();
        }
    }

    private long search(byte[] key, long hash, Entries entries, boolean isUse) {
        long tag = IndexWord.tag(hash);
        long bucket = buckets.of(hash);
        // The free overflow buckets are a chain, too, in which a reader may get.
        for (int length = 0; length < LONGEST_CHAIN; length++) {
            long word = 0;
            for (int slot = 0; slot < Buckets.SLOTS; slot++) {
                long at = Buckets.slot(bucket, slot);
                word = Memory.word(at);
                if (IndexWord.isOf(word, tag) && entries.isOf(address(word), key)) {
                    if (isUse && IndexWord.uses(word) < IndexWord.MOST_USES) {
                        Memory.replaceWord(at, word, IndexWord.withUses(word, IndexWord.uses(word) + 1));
                    }
                    return address(word);
                }
            }
            if (!IndexWord.isLink(word)) {
                return 0;
            }
            bucket = buckets.overflow(word);
        }
        return 0;
    }

    /// Finds the entry of a key. The caller holds the stripe's lock.
    ///
    /// Writers find nothing while a cache is filled. A compiler would take that for what readers see, too, if both used the
    /// same code.
    ///
    /// @return the address of the entry, or 0 if the key is not there
    long present(byte[] key, long hash) {
        return find(hash, key, ofKey);
    }

    interface Condition<T> {
        boolean isMet(long entry, T wanted);
    }

    /// Finds an entry of a key of a hash that meets a condition. The caller holds the stripe's lock.
    ///
    /// @return its address, or 0 if there is none
    <T> long find(long hash, T wanted, Condition<T> condition) {
        long bucket = buckets.of(hash);
        for (int length = 0; length < LONGEST_CHAIN; length++) {
            for (int slot = 0; slot < Buckets.SLOTS; slot++) {
                long word = Memory.word(Buckets.slot(bucket, slot));
                if (IndexWord.isOf(word, IndexWord.tag(hash)) && condition.isMet(address(word), wanted)) {
                    return address(word);
                }
            }
            long last = Memory.word(Buckets.last(bucket));
            if (!IndexWord.isLink(last)) {
                return 0;
            }
            bucket = buckets.overflow(last);
        }
        return 0;
    }

    /// Finds the word that refers to an entry. The caller holds the stripe's lock, or uses it as a hint.
    ///
    /// @return the address of the word, or 0 if no word refers to it
    long place(long entry, long hash) {
        long wanted = word(entry, hash);
        long bucket = buckets.of(hash);
        for (int length = 0; length < LONGEST_CHAIN; length++) {
            for (int slot = 0; slot < Buckets.SLOTS; slot++) {
                if (IndexWord.isSame(Memory.word(Buckets.slot(bucket, slot)), wanted)) {
                    return Buckets.slot(bucket, slot);
                }
            }
            long last = Memory.word(Buckets.last(bucket));
            if (!IndexWord.isLink(last)) {
                return 0;
            }
            bucket = buckets.overflow(last);
        }
        return 0;
    }

    /// The first word of the bucket that a hash belongs to.
    long firstWord(long hash) {
        return Memory.word(buckets.of(hash));
    }

    /// Sets the uses of an entry to 0. The caller holds the stripe's lock.
    ///
    /// @return its uses before
    static int takeUses(long at) {
        while (true) {
            long word = Memory.word(at);
            if (Memory.replaceWord(at, word, IndexWord.withUses(word, 0))) {
                return IndexWord.uses(word);
            }
        }
    }

    /// Whether an entry is there and has no uses. No lock is needed: it may be false also while other threads move words.
    boolean isUnused(long entry, long hash) {
        long at = place(entry, hash);
        return at != 0 && Memory.word(at) == word(entry, hash);
    }

    /// Visits all entries, those of a bucket at a time, each once if it stays.
    Cursor cursor() {
        return new Cursor();
    }

    /// Addresses of the entries of a part of the table. The table may grow between two parts.
    final class Cursor {
        /// Buckets whose numbers have the same lowest bits: entries stay in their part while the table grows or shrinks.
        private final int parts = buckets.perSegment();
        private int next;
        private long[] found = new long[16];
        private int count;

        /// Collects the next part; whether there was one.
        boolean advance() {
            if (next == parts) {
                return false;
            }
            count = 0;
            ReentrantLock lock = locks[next & STRIPES - 1];
            lock.lock();
            try {
                for (long number = next; number < buckets.count(); number += parts) {
                    collect(buckets.at((int) number));
                }
            } finally {
                lock.unlock();
            }
            next++;
            return true;
        }

        private void collect(long bucket) {
            while (true) {
                long word = 0;
                for (int slot = 0; slot < Buckets.SLOTS; slot++) {
                    word = Memory.word(Buckets.slot(bucket, slot));
                    if (word > 0) {
                        found = count == found.length ? Arrays.copyOf(found, 2 * count) : found;
                        found[count++] = address(word);
                    }
                }
                if (!IndexWord.isLink(word)) {
                    return;
                }
                bucket = buckets.overflow(word);
            }
        }

        int count() {
            return count;
        }

        long entry(int place) {
            return found[place];
        }
    }

    // --- Writing: the caller holds the stripe's lock -------------------------------------------------

    /// Makes a word refer to another entry of the same key.
    void replace(long at, long entry, long hash, int uses) {
        long word = IndexWord.withUses(word(entry, hash), uses);
        while (!Memory.replaceWord(at, Memory.word(at), word)) {
            Thread.onSpinWait();
        }
    }

    /// Adds an entry whose key is not there.
    ///
    /// @return whether there was room
    boolean add(long entry, long hash) {
        if (!put(buckets.of(hash), word(entry, hash))) {
            return false;
        }
        count.add(1);
        return true;
    }

    private boolean put(long bucket, long word) {
        while (true) {
            for (int slot = 0; slot < Buckets.SLOTS; slot++) {
                if (Memory.word(Buckets.slot(bucket, slot)) == 0) {
                    Memory.setWord(Buckets.slot(bucket, slot), word);
                    return true;
                }
            }
            long at = Buckets.last(bucket);
            long last = Memory.word(at);
            if (IndexWord.isLink(last)) {
                bucket = buckets.overflow(last);
                continue;
            }
            long link = buckets.takeOverflow();
            if (link == 0) {
                return false;
            }
            long next = buckets.overflow(link);
            Memory.setWord(Buckets.slot(next, 1), word);
            // Uses that are counted meanwhile are lost.
            Memory.setWord(next, last);
            Memory.setWord(at, link);
            return true;
        }
    }

    /// Removes a word, and fills its place from the last overflow bucket.
    void remove(long at, long hash) {
        int stripe = stripe(hash);
        count.add(-1);
        long before = 0;
        long bucket = buckets.of(hash);
        long last = Memory.word(Buckets.last(bucket));
        while (IndexWord.isLink(last)) {
            before = bucket;
            bucket = buckets.overflow(last);
            last = Memory.word(Buckets.last(bucket));
        }
        if (before == 0) {
            Memory.setWord(at, 0);
            return;
        }
        versions.incrementAndGet(stripe);
        Memory.setWord(at, 0);
        if (at < bucket || at >= bucket + Buckets.BYTES) {
            long any = Buckets.used(bucket);
            Memory.setWord(at, Memory.word(any));
            Memory.setWord(any, 0);
        }
        long rest = Buckets.used(bucket);
        long one = rest == 0 ? 0 : Memory.word(rest);
        if (rest != 0) {
            Memory.setWord(rest, 0);
        }
        if (Buckets.used(bucket) == 0) {
            long link = Memory.word(Buckets.last(before));
            Memory.setWord(Buckets.last(before), one);
            buckets.giveOverflow(link);
        } else {
            Memory.setWord(rest, one);
        }
        versions.incrementAndGet(stripe);
    }

    /// Splits a bucket if there are many entries. The caller holds no stripe's lock.
    void growIfFull() {
        if (count.sum() > (long) buckets.count() * LOAD && growing.tryLock()) {
            try {
                if (buckets.hasRoom()) {
                    change(buckets.count(), chain::split);
                }
            } finally {
                growing.unlock();
            }
        }
    }

    /// Merges buckets if there are few entries. The caller holds no stripe's lock.
    ///
    /// @param merges largest number of them
    /// @param unused is called with the number of a segment that only readers use who have begun before
    /// @return whether there may be more
    boolean shrinkIfSparse(int merges, IntConsumer unused) {
        boolean isSparse = isSparse();
        if (isSparse && growing.tryLock()) {
            try {
                for (int i = 0; i < merges && isSparse; i++) {
                    isSparse = change(buckets.count() - 1, chain::merge) && isSparse();
                }
                int segment = buckets.shrinkTable();
                if (segment >= 0) {
                    unused.accept(segment);
                }
                if (!isSparse && buckets.beginShrinkingOverflow()) {
                    buckets.endShrinkingOverflow(moveOverflow(), unused);
                }
            } finally {
                growing.unlock();
            }
        }
        return isSparse;
    }

    /// @return whether all chains were moved
    private boolean moveOverflow() {
        boolean isMoved = true;
        for (int part = 0; part < buckets.perSegment() && isMoved; part++) {
            int first = part;
            isMoved = change(first, () -> {
                boolean isPartMoved = true;
                for (int number = first; number < buckets.count() && isPartMoved; number += buckets.perSegment()) {
                    isPartMoved = buckets.moveOverflow(buckets.at(number));
                }
                return isPartMoved;
            });
        }
        return isMoved;
    }

    private boolean isSparse() {
        return buckets.count() > buckets.perSegment() && count.sum() < (long) buckets.count() * LEAST_LOAD;
    }

    /// Changes a bucket and the one that it is or was split from.
    private boolean change(int bucket, BooleanSupplier task) {
        int stripe = bucket & STRIPES - 1;
        locks[stripe].lock();
        try {
            versions.incrementAndGet(stripe);
            try {
                return task.getAsBoolean();
            } finally {
                versions.incrementAndGet(stripe);
            }
        } finally {
            locks[stripe].unlock();
        }
    }
}
