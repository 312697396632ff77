package io.hugewise.cache.policy;

/// How often keys were requested: a count-min sketch (Cormode, Muthukrishnan, 2005) of 4-bit counters, which are halved
/// from time to time. The counters of a key are in one line of 8 words, as in Caffeine's. Increments that happen at the
/// same time may be lost.
///
/// Lines are added one at a time (linear hashing, Litwin, 1980): a new one begins as a copy of another.
public abstract class FrequencySketch {
    /// Words of a line, each with 16 counters.
    public static final int LINE_WORDS = 8;
    /// Entries for each line.
    public static final int ENTRIES_PER_LINE = 12;
    private static final int ROWS = 4;
    private static final int MOST = 15;
    private static final long LOW_BITS = 0x7777_7777_7777_7777L;
    /// Increments for each entry, between two halvings.
    private static final int PERIOD = 20;

    private volatile long period = Long.MAX_VALUE;
    private long increments;

    /// Creates one.
    protected FrequencySketch() {}

    /// Address of the first word of the line that a hash belongs to; -1 if there are no lines.
    ///
    /// @param hash hash of a key
    /// @return its address
    protected abstract long line(long hash);

    /// Reads a word.
    ///
    /// @param line address of its line
    /// @param number number of the word, from 0 to 7
    /// @return the word
    protected abstract long word(long line, int number);

    /// Writes a word.
    ///
    /// @param line address of its line
    /// @param number number of the word, from 0 to 7
    /// @param value the word
    protected abstract void setWord(long line, int number, long value);

    /// Halves all counters by [#halved].
    protected abstract void halve();

    /// Number of the line that a hash belongs to.
    ///
    /// @param hash hash of a key
    /// @param lines number of lines
    /// @return its number
    protected static int number(long hash, int lines) {
        return LinearHashing.number((int) (hash >>> 32), lines);
    }

    /// A word with half of each counter.
    ///
    /// @param word 16 counters
    /// @return half of them
    protected static long halved(long word) {
        return word >>> 1 & LOW_BITS;
    }

    /// Takes the number of increments after which the counters are halved from the number of entries.
    ///
    /// @param entries the number that there will be
    protected final void setPeriod(long entries) {
        period = entries * PERIOD;
    }

    /// How often a key was requested.
    ///
    /// @param hash its hash
    /// @return from 0 to 15
    public final int frequency(long hash) {
        long line = line(hash);
        return line == -1 ? 0 : frequency(line, hash);
    }

    private int frequency(long line, long hash) {
        int least = MOST;
        for (int row = 0; row < ROWS; row++) {
            least = Math.min(least, (int) (word(line, place(hash, row)) >>> shift(hash, row)) & MOST);
        }
        return least;
    }

    /// Counts a request of a key.
    ///
    /// @param hash its hash
    public final void increment(long hash) {
        long line = line(hash);
        if (line == -1) {
            return;
        }
        int before = frequency(line, hash);
        for (int row = 0; row < ROWS && before < MOST; row++) {
            int place = place(hash, row);
            long counters = word(line, place);
            int shift = shift(hash, row);
            if ((counters >>> shift & MOST) == before) {
                setWord(line, place, counters + (1L << shift));
            }
        }
        increments++;
    }

    /// Halves the counters if there were many increments.
    public final void age() {
        if (increments >= period) {
            halve();
            increments /= 2;
        }
    }

    /// The word of a row in its line. A row has two of the eight words.
    private static int place(long hash, int row) {
        return 2 * row + (bits(hash, row) & 1);
    }

    private static int shift(long hash, int row) {
        return (bits(hash, row) >>> 1 & 15) * 4;
    }

    private static int bits(long hash, int row) {
        return (int) ((hash * 0x9E3779B97F4A7C15L) >>> (32 + 8 * row));
    }
}
