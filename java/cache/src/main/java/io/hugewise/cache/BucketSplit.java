package io.hugewise.cache;

import java.util.Arrays;

/// Splits a bucket: its entries, those of its overflow buckets included, are distributed to it and a new bucket.
final class BucketSplit {
    private final Buckets buckets;
    private long[] words = new long[64];
    private int count;
    /// Links to the overflow buckets that are not used yet.
    private long[] links = new long[8];
    private int linkCount;

    BucketSplit(Buckets buckets) {
        this.buckets = buckets;
    }

    /// Adds the next bucket, and splits another one into both. Readers may miss entries meanwhile.
    void run() {
        int number = buckets.count();
        int bit = Integer.highestOneBit(number);
        long old = buckets.at(number - bit);
        collect(old);
        buckets.setCount(number + 1);
        Buckets.clear(old);
        int moved = 0;
        for (int i = 0; i < count; i++) {
            if ((IndexWord.hashBits(words[i]) & bit) != 0) {
                long word = words[i];
                words[i] = words[moved];
                words[moved++] = word;
            }
        }
        // There are enough buckets in the old chain for both.
        fill(buckets.at(number), 0, moved);
        fill(old, moved, count);
        while (linkCount > 0) {
            buckets.giveOverflow(links[--linkCount]);
        }
    }

    private void collect(long bucket) {
        while (true) {
            for (int slot = 0; slot < Buckets.SLOTS; slot++) {
                long word = Memory.word(Buckets.slot(bucket, slot));
                if (word > 0) {
                    words = count == words.length ? Arrays.copyOf(words, 2 * count) : words;
                    words[count++] = word;
                }
            }
            long last = Memory.word(Buckets.last(bucket));
            if (!IndexWord.isLink(last)) {
                return;
            }
            links = linkCount == links.length ? Arrays.copyOf(links, 2 * linkCount) : links;
            links[linkCount++] = last;
            bucket = buckets.overflow(last);
        }
    }

    /// Fills an empty bucket, and overflow buckets as needed.
    private void fill(long bucket, int from, int to) {
        while (to - from > Buckets.SLOTS) {
            long link = links[--linkCount];
            long next = buckets.overflow(link);
            Buckets.clear(next);
            for (int slot = 0; slot < Buckets.SLOTS - 1; slot++) {
                Memory.setWord(Buckets.slot(bucket, slot), words[from++]);
            }
            Memory.setWord(Buckets.last(bucket), link);
            bucket = next;
        }
        for (int slot = 0; from < to; slot++) {
            Memory.setWord(Buckets.slot(bucket, slot), words[from++]);
        }
    }
}
