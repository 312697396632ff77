package io.hugewise.cache.simulation;

import io.hugewise.cache.policy.FrequencySketch;
import io.hugewise.cache.policy.LinearHashing;
import java.util.Arrays;

/// The sketch of the cache, as small as it can be for a number of entries.
final class Sketch extends FrequencySketch {
    /// Lines that are added together: those of the smallest segment.
    private static final int LINES = 1024;

    private long[] words = new long[0];

    /// Makes room for a number of entries.
    void expect(long entries) {
        setPeriod(entries);
        while ((long) lines() * ENTRIES_PER_LINE < entries) {
            int last = words.length / (LINES * LINE_WORDS);
            words = Arrays.copyOf(words, words.length + LINES * LINE_WORDS);
            if (last > 0) {
                System.arraycopy(words, LinearHashing.origin(last) * LINES * LINE_WORDS, words, last * LINES * LINE_WORDS, LINES * LINE_WORDS);
            }
        }
    }

    private int lines() {
        return words.length / LINE_WORDS;
    }

    @Override
    protected long line(long hash) {
        return words.length == 0 ? -1 : (long) number(hash, lines()) * LINE_WORDS;
    }

    @Override
    protected long word(long line, int number) {
        return words[(int) line + number];
    }

    @Override
    protected void setWord(long line, int number, long value) {
        words[(int) line + number] = value;
    }

    @Override
    protected void halve() {
        Arrays.setAll(words, i -> halved(words[i]));
    }
}
