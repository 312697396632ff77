package io.hugewise.cache.simulation;

import java.util.Arrays;

/// A count-min sketch (Cormode, Muthukrishnan, 2005) of 4-bit counters, which are halved from time to time.
final class Sketch {
    private static final int COUNTERS_PER_ENTRY = 16;
    private static final int MOST = 15;
    private static final int ROWS = 4;

    private final int periodPerEntry;
    private byte[] counters = new byte[COUNTERS_PER_ENTRY];
    private long period;
    private long increments;

    /// Creates a sketch that is halved after `period` increments for each entry.
    Sketch(int period) {
        periodPerEntry = period;
    }

    /// Makes room for a number of entries. Both halves of the grown sketch have the counters of the old one.
    void grow(long entries) {
        period = entries * periodPerEntry;
        while (counters.length < entries * COUNTERS_PER_ENTRY) {
            byte[] doubled = Arrays.copyOf(counters, 2 * counters.length);
            System.arraycopy(counters, 0, doubled, counters.length, counters.length);
            counters = doubled;
        }
    }

    int frequency(int key) {
        int least = MOST;
        for (int row = 0; row < ROWS; row++) {
            least = Math.min(least, counters[index(key, row)]);
        }
        return least;
    }

    void increment(int key) {
        int before = frequency(key);
        for (int row = 0; row < ROWS && before < MOST; row++) {
            int index = index(key, row);
            counters[index] = (byte) Math.max(counters[index], before + 1);
        }
        increments++;
        if (increments >= period) {
            for (int i = 0; i < counters.length; i++) {
                counters[i] >>= 1;
            }
            increments /= 2;
        }
    }

    private int index(int key, int row) {
        long hash = (key + 1) * 0x9E3779B97F4A7C15L + row * 0xD1B54A32D192ED03L;
        hash = (hash ^ hash >>> 32) * 0xBF58476D1CE4E5B9L;
        return (int) (hash ^ hash >>> 29) & counters.length - 1;
    }
}
