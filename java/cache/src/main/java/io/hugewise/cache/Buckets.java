package io.hugewise.cache;

import io.hugewise.cache.Manifest.Figure;
import io.hugewise.cache.Manifest.Use;
import io.hugewise.cache.policy.LinearHashing;
import java.util.Arrays;
import java.util.BitSet;
import java.util.function.IntConsumer;

/// Memory of the index: a table of buckets, and overflow buckets for those that are full.
///
/// A bucket is a cache line of 8 words ([IndexWord]). If it has more entries, its last word is a link to an overflow
/// bucket.
final class Buckets {
    static final int BYTES = 64;
    static final int SLOTS = 8;
    private static final long LAST_SLOT = (SLOTS - 1L) * Long.BYTES;

    private final Segments segments;
    private final int shift;
    /// Addresses of segments, also of those that the table had before it shrank.
    private volatile long[] table;
    private volatile int tableSegments;
    private volatile long[] overflow;
    private volatile int overflowSegments;
    /// While overflow buckets move to smaller numbers, those with greater ones are not taken.
    private long overflowLimit = Long.MAX_VALUE;
    /// Number of buckets; the buckets before this one's lower half are split.
    private volatile int count;
    private long usedOverflow;
    /// Link to the first free overflow bucket; 0 if there is none.
    private long freeOverflow;

    /// Uses the buckets that the manifest has, if there are some.
    Buckets(Segments segments) {
        this.segments = segments;
        this.shift = Integer.numberOfTrailingZeros(segments.size / BYTES);
        table = addresses(Use.TABLE);
        overflow = addresses(Use.OVERFLOW);
        tableSegments = table.length;
        overflowSegments = overflow.length;
        if (tableSegments == 0) {
            growTable();
            setCount(1 << shift);
        } else {
            count = (int) Math.clamp(segments.manifest.figure(Figure.BUCKETS), 1 << shift, (long) table.length << shift);
            usedOverflow = segments.manifest.figure(Figure.USED_OVERFLOW);
            freeOverflow = segments.manifest.figure(Figure.FREE_OVERFLOW);
        }
    }

    private long[] addresses(Use use) {
        return Arrays.stream(segments.withUse(use)).mapToLong(segments::address).toArray();
    }

    private void growTable() {
        int last = tableSegments;
        // Before the segment is taken, which would be lost if there were no memory on the heap.
        long[] longer = longer(table, last);
        long address = takeSegment(Use.TABLE, last);
        if (address != 0) {
            longer[last] = address;
            table = longer;
            tableSegments = last + 1;
        }
    }

    /// A copy with room for an address at a place.
    private static long[] longer(long[] addresses, int place) {
        return Arrays.copyOf(addresses, Math.max(place + 1, addresses.length));
    }

    /// {@return the address of a segment with zeros, or 0 if no memory is free}
    private long takeSegment(Use use, int order) {
        // Without an overflow bucket, a new entry is rejected; the table can grow later.
        int segment = segments.tryTake(use == Use.OVERFLOW ? 0 : Segments.RESERVED);
        if (segment < 0) {
            return 0;
        }
        long address = segments.address(segment);
        Memory.slice(address, segments.size).fill((byte) 0);
        segments.manifest.setUse(segment, use, order);
        return address;
    }

    /// Writes to the manifest what it does not have yet. No thread uses the buckets any more.
    void save() {
        segments.manifest.setFigure(Figure.USED_OVERFLOW, usedOverflow);
        segments.manifest.setFigure(Figure.FREE_OVERFLOW, freeOverflow);
    }

    int count() {
        return count;
    }

    /// Bytes of all buckets.
    long bytes() {
        return (long) (tableSegments + overflowSegments) * segments.size;
    }

    // --- Addresses ---------------------------------------------------------------------------------

    /// Address of the bucket that a hash belongs to.
    long of(long hash) {
        return at(LinearHashing.number((int) hash, count));
    }

    long at(int number) {
        return address(table, number);
    }

    long overflow(long link) {
        return address(overflow, IndexWord.overflowBucket(link));
    }

    private long address(long[] bases, long number) {
        return bases[(int) (number >>> shift)] + (number & (1 << shift) - 1) * BYTES;
    }

    static long slot(long bucket, int slot) {
        return bucket + (long) slot * Long.BYTES;
    }

    /// Address of the last word, which may be a link.
    static long last(long bucket) {
        return bucket + LAST_SLOT;
    }

    /// {@return the address of a word in the bucket that is not 0, or 0 if there is none}
    static long used(long bucket) {
        for (int slot = 0; slot < SLOTS; slot++) {
            if (Memory.word(slot(bucket, slot)) != 0) {
                return slot(bucket, slot);
            }
        }
        return 0;
    }

    /// Word by word: readers must not see half of one.
    static void clear(long bucket) {
        for (int slot = 0; slot < SLOTS; slot++) {
            Memory.setWord(slot(bucket, slot), 0);
        }
    }

    // --- Growing -----------------------------------------------------------------------------------

    /// Makes sure that there is memory for another bucket. One thread at a time may call it.
    ///
    /// @return whether there is
    boolean hasRoom() {
        if (count >>> shift == tableSegments) {
            growTable();
        }
        return count >>> shift < tableSegments;
    }

    /// Changes the number of buckets, when the last one gets entries of another one.
    void setCount(int buckets) {
        segments.manifest.setFigure(Figure.BUCKETS, buckets);
        count = buckets;
    }

    /// The number of buckets in a segment, which is the smallest number of buckets.
    int perSegment() {
        return 1 << shift;
    }

    /// Takes the last segment from the table if it has no buckets, nor will have some soon. One thread at a time may
    /// call it.
    ///
    /// @return its number, which readers may still use; -1 if there is none
    int shrinkTable() {
        int last = tableSegments - 1;
        if (count > ((long) last << shift) - perSegment() / 2) {
            return -1;
        }
        tableSegments = last;
        return segments.of(table[last]);
    }

    /// {@return the link to an empty bucket, or 0 if no memory is free}
    synchronized long takeOverflow() {
        if (freeOverflow != 0) {
            long link = freeOverflow;
            long last = last(overflow(link));
            freeOverflow = Memory.word(last);
            Memory.setWord(last, 0);
            return link;
        }
        if (usedOverflow == overflowLimit) {
            return 0;
        }
        int last = overflowSegments;
        if (usedOverflow >>> shift == last) {
            long[] longer = longer(overflow, last);
            long address = takeSegment(Use.OVERFLOW, last);
            if (address == 0) {
                return 0;
            }
            longer[last] = address;
            overflow = longer;
            overflowSegments = last + 1;
        }
        return IndexWord.link(usedOverflow++);
    }

    /// {@return the number of overflow buckets that there is memory for}
    long overflowCapacity() {
        return (long) overflowSegments << shift;
    }

    /// Makes all overflow buckets free that are not used, after they were not kept up to date.
    void setUsedOverflow(BitSet used) {
        usedOverflow = used.length();
        freeOverflow = 0;
        for (int number = used.nextClearBit(0); number < usedOverflow; number = used.nextClearBit(number + 1)) {
            giveOverflow(IndexWord.link(number));
        }
        for (long number = usedOverflow; number < overflowCapacity(); number++) {
            clear(overflow(IndexWord.link(number)));
        }
    }

    /// Makes a bucket free: its last word is the link to the next free one. Readers may still be in it, and look again
    /// because the stripe's version has changed.
    synchronized void giveOverflow(long link) {
        long bucket = overflow(link);
        clear(bucket);
        if (IndexWord.overflowBucket(link) < overflowLimit) {
            Memory.setWord(last(bucket), freeOverflow);
            freeOverflow = link;
        }
    }

    // --- Shrinking ---------------------------------------------------------------------------------

    /// Chooses how many overflow buckets are enough, if there are many more, and does not take those with greater numbers
    /// any more. After it, [#moveOverflow] is called for all buckets.
    ///
    /// @return whether there are many more
    synchronized boolean beginShrinkingOverflow() {
        long enough = (1L + count / 2 / perSegment()) * perSegment();
        if (overflowCapacity() <= enough) {
            return false;
        }
        long taken = usedOverflow;
        for (long link = freeOverflow; link != 0; link = nextFree(link)) {
            taken--;
        }
        // Stripes may take some during that time.
        if (taken + Index.STRIPES > enough) {
            return false;
        }
        long kept = 0;
        for (long link = freeOverflow; link != 0; ) {
            long next = nextFree(link);
            if (IndexWord.overflowBucket(link) < enough) {
                Memory.setWord(last(overflow(link)), kept);
                kept = link;
            }
            link = next;
        }
        freeOverflow = kept;
        usedOverflow = Math.min(usedOverflow, enough);
        overflowLimit = enough;
        return true;
    }

    private long nextFree(long link) {
        return Memory.word(last(overflow(link)));
    }

    /// Moves overflow buckets of a bucket to those that stay. The caller holds the stripe's lock; readers may miss
    /// entries during that time.
    ///
    /// @return whether there were enough
    boolean moveOverflow(long bucket) {
        long at = last(bucket);
        for (long link = Memory.word(at); IndexWord.isLink(link); link = Memory.word(at)) {
            if (IndexWord.overflowBucket(link) >= overflowLimit) {
                long other = takeOverflow();
                if (other == 0) {
                    return false;
                }
                for (int slot = 0; slot < SLOTS; slot++) {
                    Memory.setWord(slot(overflow(other), slot), Memory.word(slot(overflow(link), slot)));
                }
                Memory.setWord(at, other);
                link = other;
            }
            at = last(overflow(link));
        }
        return true;
    }

    /// Makes the overflow buckets with greater numbers free.
    ///
    /// @param isMoved whether no bucket has them any more
    /// @param unused is called with the numbers of segments that only readers use who have begun before
    synchronized void endShrinkingOverflow(boolean isMoved, IntConsumer unused) {
        if (isMoved) {
            int before = overflowSegments;
            overflowSegments = (int) (overflowLimit >>> shift);
            for (int i = overflowSegments; i < before; i++) {
                unused.accept(segments.of(overflow[i]));
            }
        } else {
            usedOverflow = overflowCapacity();
        }
        overflowLimit = Long.MAX_VALUE;
    }
}
