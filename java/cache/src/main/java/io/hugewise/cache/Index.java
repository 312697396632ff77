package io.hugewise.cache;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;

/// A hash table of entries outside of the heap, which grows by one bucket at a time (linear hashing, Litwin, 1980).
///
/// A bucket is a cache line of 8 words. If it has more entries, its last word is the number of an overflow bucket.
///
/// ```text
///  63    62..61  60..24                      23..0
/// ┌──────┬──────┬───────────────────────────┬──────────────────┐
/// │ link │ uses │ address of the entry / 8  │ hash, bits 8..31 │
/// └──────┴──────┴───────────────────────────┴──────────────────┘
/// ```
///
/// Reading takes no lock. Writers hold the lock of the stripe that the hash belongs to, which is that of a bucket and
/// of the one that it is split into. While they move words from one place to another, the stripe's version is odd:
/// who then misses an entry looks again.
final class Index {
    static final int BUCKET = 64;
    static final int STRIPES = 256;
    private static final int SLOTS = 8;
    private static final int LAST = SLOTS - 1;
    /// Offset of the last word of a bucket.
    private static final long LAST_SLOT = (long) LAST * Long.BYTES;
    private static final int TAG_SHIFT = 8;
    private static final long TAG = 0xFF_FFFF;
    private static final int LOCATION_SHIFT = 24;
    private static final long LOCATION = (1L << 37) - 1;
    private static final int USES_SHIFT = 61;
    private static final long MOST_USES = 3;
    private static final int UNIT = 8;
    /// Entries for each bucket at which the table grows.
    private static final int LOAD = 6;
    private static final int LONGEST_CHAIN = 1 << 10;

    private final Segments segments;
    private final int bucketShift;
    private final ReentrantLock[] locks = new ReentrantLock[STRIPES];
    private final AtomicIntegerArray versions = new AtomicIntegerArray(STRIPES);
    private final LongAdder count = new LongAdder();
    private final ReentrantLock growing = new ReentrantLock();
    private volatile long[] table = {};
    private volatile long[] overflow = {};
    /// Number of buckets; the buckets before this one's lower half are split.
    private volatile int buckets;
    private long usedOverflow;
    /// Link to the first free overflow bucket; 0 if there is none.
    private long freeOverflow;

    Index(Segments segments) {
        this.segments = segments;
        bucketShift = Integer.numberOfTrailingZeros(segments.size / BUCKET);
        Arrays.setAll(locks, _ -> new ReentrantLock());
        table = withSegment(table);
        buckets = 1 << bucketShift;
    }

    private long[] withSegment(long[] bases) {
        int segment = segments.tryTake(Segments.RESERVED);
        if (segment < 0) {
            return bases;
        }
        long address = segments.address(segment);
        Memory.slice(address, segments.size).fill((byte) 0);
        long[] longer = Arrays.copyOf(bases, bases.length + 1);
        longer[bases.length] = address;
        return longer;
    }

    // --- Words -------------------------------------------------------------------------------------

    static long tag(long hash) {
        return hash >>> TAG_SHIFT & TAG;
    }

    private long word(long address, long hash) {
        return (((address - segments.base) / UNIT) << LOCATION_SHIFT) | tag(hash);
    }

    /// Offset of a word in its bucket.
    private static long at(int slot) {
        return (long) slot * Long.BYTES;
    }

    private static boolean isLink(long word) {
        return word < 0;
    }

    private static boolean isOf(long word, long tag) {
        return word > 0 && (word & TAG) == tag;
    }

    /// Address of the entry that a word refers to.
    long address(long word) {
        return segments.base + (word >>> LOCATION_SHIFT & LOCATION) * UNIT;
    }

    static int uses(long word) {
        return (int) (word >>> USES_SHIFT & MOST_USES);
    }

    static int stripe(long hash) {
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
        return (long) (table.length + overflow.length) * segments.size;
    }

    // --- Reading -----------------------------------------------------------------------------------

    /// Finds the entry of a key, and counts a use of it. The caller holds a pin.
    ///
    /// @return the address of the entry, or 0 if the key is not there
    long find(byte[] key, long hash, Entries entries, boolean isUse) {
        int stripe = stripe(hash);
        while (true) {
            int version = versions.get(stripe);
            long found = search(key, hash, entries, isUse);
            if (found != 0 || ((version & 1) == 0 && versions.get(stripe) == version)) {
                return found;
            }
            Thread.onSpinWait();
        }
    }

    private long search(byte[] key, long hash, Entries entries, boolean isUse) {
        long tag = tag(hash);
        long bucket = bucket(hash);
        // The free overflow buckets are a chain, too, in which a reader may get.
        for (int length = 0; length < LONGEST_CHAIN; length++) {
            long word = 0;
            for (int slot = 0; slot < SLOTS; slot++) {
                long at = bucket + at(slot);
                word = Memory.word(at);
                if (isOf(word, tag) && entries.isOf(address(word), key)) {
                    if (isUse && uses(word) < MOST_USES) {
                        Memory.replaceWord(at, word, word + (1L << USES_SHIFT));
                    }
                    return address(word);
                }
            }
            if (!isLink(word)) {
                return 0;
            }
            bucket = overflowBucket(word);
        }
        return 0;
    }

    /// Finds the word that refers to an entry. The caller holds the stripe's lock, or uses it as a hint.
    ///
    /// @return the address of the word, or 0 if no word refers to it
    long place(long entry, long hash) {
        long wanted = word(entry, hash);
        long mask = LOCATION << LOCATION_SHIFT | TAG;
        long bucket = bucket(hash);
        for (int length = 0; length < LONGEST_CHAIN; length++) {
            for (int slot = 0; slot < SLOTS; slot++) {
                long word = Memory.word(bucket + at(slot));
                if (word > 0 && (word & mask) == wanted) {
                    return bucket + at(slot);
                }
            }
            long last = Memory.word(bucket + LAST_SLOT);
            if (!isLink(last)) {
                return 0;
            }
            bucket = overflowBucket(last);
        }
        return 0;
    }

    /// Sets the uses of an entry to 0. The caller holds the stripe's lock.
    ///
    /// @return its uses before
    static int takeUses(long at) {
        while (true) {
            long word = Memory.word(at);
            if (Memory.replaceWord(at, word, word & ~(MOST_USES << USES_SHIFT))) {
                return uses(word);
            }
        }
    }

    private long bucket(long hash) {
        return bucket(number((int) hash, buckets));
    }

    private static int number(int hash, int buckets) {
        int level = Integer.highestOneBit(buckets);
        int number = hash & 2 * level - 1;
        return number < buckets ? number : number & level - 1;
    }

    private long bucket(int number) {
        return table[number >>> bucketShift] + (long) (number & (1 << bucketShift) - 1) * BUCKET;
    }

    private long overflowBucket(long link) {
        long number = link & Long.MAX_VALUE;
        return overflow[(int) (number >>> bucketShift)] + (number & (1 << bucketShift) - 1) * BUCKET;
    }

    /// Visits all entries, those of a bucket at a time, each once if it stays.
    Cursor cursor() {
        return new Cursor();
    }

    /// Addresses of the entries of a part of the table. The table may grow between two parts.
    final class Cursor {
        private final int parts = buckets;
        private final int level = Integer.highestOneBit(parts);
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
                // The bucket itself, and those that it was split into since.
                for (long number = next; number < buckets; number += level) {
                    if (number((int) number, parts) == next) {
                        collect(bucket((int) number));
                    }
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
                for (int slot = 0; slot < SLOTS; slot++) {
                    word = Memory.word(bucket + at(slot));
                    if (word > 0) {
                        found = count == found.length ? Arrays.copyOf(found, 2 * count) : found;
                        found[count++] = address(word);
                    }
                }
                if (!isLink(word)) {
                    return;
                }
                bucket = overflowBucket(word);
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
        long word = word(entry, hash) | (long) uses << USES_SHIFT;
        while (!Memory.replaceWord(at, Memory.word(at), word)) {
            Thread.onSpinWait();
        }
    }

    /// Adds an entry whose key is not there.
    ///
    /// @return whether there was room
    boolean add(long entry, long hash) {
        if (!put(bucket(hash), word(entry, hash))) {
            return false;
        }
        count.increment();
        return true;
    }

    private boolean put(long bucket, long word) {
        while (true) {
            for (int slot = 0; slot < SLOTS; slot++) {
                if (Memory.word(bucket + at(slot)) == 0) {
                    Memory.setWord(bucket + at(slot), word);
                    return true;
                }
            }
            long at = bucket + LAST_SLOT;
            long last = Memory.word(at);
            if (isLink(last)) {
                bucket = overflowBucket(last);
                continue;
            }
            long link = takeOverflow();
            if (link == 0) {
                return false;
            }
            long next = overflowBucket(link);
            Memory.setWord(next + Long.BYTES, word);
            // Uses that are counted meanwhile are lost.
            Memory.setWord(next, last);
            Memory.setWord(at, link);
            return true;
        }
    }

    /// Removes a word, and fills its place from the last overflow bucket.
    void remove(long at, long hash) {
        int stripe = stripe(hash);
        count.decrement();
        long before = 0;
        long bucket = bucket(hash);
        long last = Memory.word(bucket + LAST_SLOT);
        while (isLink(last)) {
            before = bucket;
            bucket = overflowBucket(last);
            last = Memory.word(bucket + LAST_SLOT);
        }
        if (before == 0) {
            Memory.setWord(at, 0);
            return;
        }
        versions.incrementAndGet(stripe);
        Memory.setWord(at, 0);
        if (at < bucket || at >= bucket + BUCKET) {
            long any = used(bucket);
            Memory.setWord(at, Memory.word(any));
            Memory.setWord(any, 0);
        }
        long rest = used(bucket);
        long one = rest == 0 ? 0 : Memory.word(rest);
        if (rest != 0) {
            Memory.setWord(rest, 0);
        }
        if (used(bucket) == 0) {
            long link = Memory.word(before + LAST_SLOT);
            Memory.setWord(before + LAST_SLOT, one);
            giveOverflow(link);
        } else {
            Memory.setWord(rest, one);
        }
        versions.incrementAndGet(stripe);
    }

    /// Word by word: readers must not see half of one.
    private static void clear(long bucket) {
        for (int slot = 0; slot < SLOTS; slot++) {
            Memory.setWord(bucket + at(slot), 0);
        }
    }

    /// {@return the address of a word in the bucket that is not 0, or 0 if there is none}
    private static long used(long bucket) {
        for (int slot = 0; slot < SLOTS; slot++) {
            if (Memory.word(bucket + at(slot)) != 0) {
                return bucket + at(slot);
            }
        }
        return 0;
    }

    // --- Growing -----------------------------------------------------------------------------------

    /// Splits a bucket if there are many entries. The caller holds no stripe's lock.
    void growIfFull() {
        if (count.sum() <= (long) buckets * LOAD || !growing.tryLock()) {
            return;
        }
        try {
            int number = buckets;
            if (number >>> bucketShift == table.length) {
                table = withSegment(table);
                if (number >>> bucketShift == table.length) {
                    return;
                }
            }
            ReentrantLock lock = locks[number & STRIPES - 1];
            lock.lock();
            try {
                split(number);
            } finally {
                lock.unlock();
            }
        } finally {
            growing.unlock();
        }
    }

    private void split(int number) {
        int bit = Integer.highestOneBit(number);
        long old = bucket(number - bit);
        int stripe = number & STRIPES - 1;
        long[] words = new long[64];
        long[] freed = new long[8];
        int count = 0;
        int links = 0;
        for (long bucket = old; ; ) {
            for (int slot = 0; slot < SLOTS; slot++) {
                long word = Memory.word(bucket + at(slot));
                if (word > 0) {
                    words = count == words.length ? Arrays.copyOf(words, 2 * count) : words;
                    words[count++] = word;
                }
            }
            long last = Memory.word(bucket + LAST_SLOT);
            if (!isLink(last)) {
                break;
            }
            freed = links == freed.length ? Arrays.copyOf(freed, 2 * links) : freed;
            freed[links++] = last;
            bucket = overflowBucket(last);
        }
        versions.incrementAndGet(stripe);
        buckets = number + 1;
        clear(old);
        int moved = 0;
        for (int i = 0; i < count; i++) {
            if (((words[i] & TAG) << TAG_SHIFT & bit) != 0) {
                long word = words[i];
                words[i] = words[moved];
                words[moved++] = word;
            }
        }
        // There are enough buckets in the old chain for both.
        links = fill(bucket(number), words, 0, moved, freed, links);
        links = fill(old, words, moved, count, freed, links);
        while (links > 0) {
            giveOverflow(freed[--links]);
        }
        versions.incrementAndGet(stripe);
    }

    /// Fills an empty bucket, and overflow buckets from the end of an array.
    ///
    /// @return the number of overflow buckets that are left
    private int fill(long bucket, long[] words, int from, int to, long[] links, int count) {
        while (to - from > SLOTS) {
            long link = links[--count];
            long next = overflowBucket(link);
            clear(next);
            for (int slot = 0; slot < LAST; slot++) {
                Memory.setWord(bucket + at(slot), words[from++]);
            }
            Memory.setWord(bucket + LAST_SLOT, link);
            bucket = next;
        }
        for (int slot = 0; from < to; slot++) {
            Memory.setWord(bucket + at(slot), words[from++]);
        }
        return count;
    }

    // --- Overflow buckets ----------------------------------------------------------------------------

    /// {@return the link to an empty bucket, or 0 if no memory is free}
    private synchronized long takeOverflow() {
        if (freeOverflow != 0) {
            long link = freeOverflow;
            long last = overflowBucket(link) + LAST_SLOT;
            freeOverflow = Memory.word(last);
            Memory.setWord(last, 0);
            return link;
        }
        if (usedOverflow >>> bucketShift == overflow.length) {
            overflow = withSegment(overflow);
            if (usedOverflow >>> bucketShift == overflow.length) {
                return 0;
            }
        }
        return usedOverflow++ | Long.MIN_VALUE;
    }

    /// Makes a bucket free: its last word is the link to the next free one. Readers may still be in it, and look again
    /// because the stripe's version has changed.
    private synchronized void giveOverflow(long link) {
        long bucket = overflowBucket(link);
        clear(bucket);
        Memory.setWord(bucket + LAST_SLOT, freeOverflow);
        freeOverflow = link;
    }
}
