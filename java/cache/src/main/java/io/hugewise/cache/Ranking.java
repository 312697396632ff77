package io.hugewise.cache;

import io.hugewise.cache.policy.Rank;
import java.util.Arrays;

/// Entries by rank.
final class Ranking {
    private static final int RANK_SHIFT = 48;

    private final Segments segments;
    /// Rank and offset of each entry.
    private long[] ranked = new long[256];
    private int size;

    Ranking(Segments segments) {
        this.segments = segments;
    }

    void add(long rank, long entry) {
        add(rank << RANK_SHIFT | entry - segments.base);
    }

    private void add(long word) {
        ranked = size == ranked.length ? Arrays.copyOf(ranked, 2 * size) : ranked;
        ranked[size++] = word;
    }

    /// Adds the entries of the main log that another ranking has.
    void addMain(Ranking other) {
        for (int i = 0; i < other.size; i++) {
            if (other.isMain(i)) {
                add(other.ranked[i]);
            }
        }
    }

    void removeMain() {
        int all = size;
        size = 0;
        for (int i = 0; i < all; i++) {
            if (!isMain(i)) {
                ranked[size++] = ranked[i];
            }
        }
    }

    int size() {
        return size;
    }

    /// Keeps the entries that were added first.
    void cut(int count) {
        size = count;
    }

    /// The entry at a place; the best is the last if it was sorted.
    long entry(int place) {
        return segments.base + (ranked[place] & (1L << RANK_SHIFT) - 1);
    }

    /// Whether the entry at a place is in the main log.
    boolean isMain(int place) {
        return Rank.isMain(ranked[place] >>> RANK_SHIFT);
    }

    /// Number of entries of the main log.
    int mainSize() {
        return size - countOthers(0);
    }

    /// Number of entries of the window from a place on.
    private int countOthers(int from) {
        int count = 0;
        for (int i = from; i < size; i++) {
            count += isMain(i) ? 0 : 1;
        }
        return count;
    }

    void sort() {
        Arrays.sort(ranked, 0, size);
    }

    /// The least rank among the best, as many as the main log has. It has an entry, and [#winners] was called.
    long rankToWin() {
        return ranked[size - mainSize()] >>> RANK_SHIFT;
    }

    /// Number of entries of the window among the best, as many as the main log has.
    int winners() {
        sort();
        return countOthers(size - mainSize());
    }
}
