package io.hugewise.cache;

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
        ranked = size == ranked.length ? Arrays.copyOf(ranked, 2 * size) : ranked;
        ranked[size++] = rank << RANK_SHIFT | entry - segments.base;
    }

    int size() {
        return size;
    }

    /// The entry at a place; the best is the last if it was sorted.
    long entry(int place) {
        return segments.base + (ranked[place] & (1L << RANK_SHIFT) - 1);
    }

    boolean isIn(int place, int segment) {
        return segments.of(entry(place)) == segment;
    }

    int count(int segment) {
        int count = 0;
        for (int i = 0; i < size; i++) {
            count += isIn(i, segment) ? 1 : 0;
        }
        return count;
    }

    void sort() {
        Arrays.sort(ranked, 0, size);
    }

    /// Number of entries of other segments among the best, as many as the segment has.
    int winners(int segment) {
        int places = count(segment);
        sort();
        int winners = 0;
        for (int i = size - 1; i >= size - places; i--) {
            winners += isIn(i, segment) ? 0 : 1;
        }
        return winners;
    }
}
