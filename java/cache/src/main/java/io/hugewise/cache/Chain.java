package io.hugewise.cache;

import io.hugewise.cache.policy.LinearHashing;
import java.util.Arrays;
import java.util.function.LongConsumer;
import java.util.function.LongPredicate;

/// The words of a bucket and of its overflow buckets, to be distributed anew.
final class Chain {
    private final Buckets buckets;
    private long[] words = new long[64];
    private int count;
    private long[] links = new long[8];
    private int linkCount;
    private boolean isComplete;

    Chain(Buckets buckets) {
        this.buckets = buckets;
    }

    /// Adds the next bucket, and splits another one into both. Readers may miss entries meanwhile.
    ///
    /// @return true
    boolean split() {
        int number = buckets.count();
        int bit = Integer.highestOneBit(number);
        long old = buckets.at(LinearHashing.origin(number));
        collect(old, _ -> true);
        // A killed process may have left words there.
        Buckets.clear(buckets.at(number));
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
        giveLinks(0);
        return true;
    }

    /// Moves the words of the last bucket to the one that it was split from. Readers may miss entries meanwhile.
    ///
    /// @return whether there were enough overflow buckets
    boolean merge() {
        int number = buckets.count() - 1;
        long last = buckets.at(number);
        long old = buckets.at(LinearHashing.origin(number));
        collect(old, _ -> true);
        add(last, _ -> true);
        int own = linkCount;
        while (count > Buckets.SLOTS + (Buckets.SLOTS - 1) * linkCount) {
            growLinks();
            long link = buckets.takeOverflow();
            if (link == 0) {
                giveLinks(own);
                return false;
            }
            addLink(link);
        }
        write(old);
        buckets.setCount(number);
        Buckets.clear(last);
        giveLinks(0);
        return true;
    }

    /// Makes overflow buckets free that no bucket has any more.
    private void giveLinks(int spared) {
        while (linkCount > spared) {
            buckets.giveOverflow(takeLink());
        }
    }

    int count() {
        return count;
    }

    long word(int place) {
        return words[place];
    }

    void remove(int place) {
        words[place] = words[--count];
    }

    /// Number of links to overflow buckets.
    int links() {
        return linkCount;
    }

    /// Collects the words of a bucket and its overflow buckets.
    ///
    /// @param isValid whether the overflow bucket of a link is part of the chain
    void collect(long bucket, LongPredicate isValid) {
        count = 0;
        linkCount = 0;
        isComplete = true;
        add(bucket, isValid);
    }

    private void add(long bucket, LongPredicate isValid) {
        while (true) {
            for (int slot = 0; slot < Buckets.SLOTS; slot++) {
                long word = Memory.word(Buckets.slot(bucket, slot));
                if (word > 0) {
                    words = count == words.length ? Arrays.copyOf(words, 2 * count) : words;
                    words[count++] = word;
                }
                isComplete &= !IndexWord.isLink(word) || slot == Buckets.SLOTS - 1;
            }
            long last = Memory.word(Buckets.last(bucket));
            if (!IndexWord.isLink(last)) {
                return;
            }
            if (!isValid.test(last)) {
                isComplete = false;
                return;
            }
            addLink(last);
            bucket = buckets.overflow(last);
        }
    }

    /// Calls a function with the address of each word of a bucket and of its overflow buckets, whose links are valid.
    void forEachPlace(long bucket, LongConsumer visitor) {
        long last;
        do {
            last = Memory.word(Buckets.last(bucket));
            for (int slot = 0; slot < Buckets.SLOTS; slot++) {
                if (Memory.word(Buckets.slot(bucket, slot)) > 0) {
                    visitor.accept(Buckets.slot(bucket, slot));
                }
            }
            bucket = IndexWord.isLink(last) ? buckets.overflow(last) : bucket;
        } while (IndexWord.isLink(last));
    }

    private void addLink(long link) {
        growLinks();
        links[linkCount++] = link;
    }

    private void growLinks() {
        links = linkCount == links.length ? Arrays.copyOf(links, 2 * linkCount) : links;
    }

    /// Whether all links were valid, and the last overflow bucket has words, as [Index#remove] expects.
    boolean isComplete() {
        return isComplete && (linkCount == 0 || count >= (Buckets.SLOTS - 1) * linkCount + 2);
    }

    /// Writes all words to a bucket, and to overflow buckets as needed.
    void write(long bucket) {
        Buckets.clear(bucket);
        fill(bucket, 0, count);
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

    /// Takes a link that no bucket has any more.
    long takeLink() {
        return links[--linkCount];
    }
}
