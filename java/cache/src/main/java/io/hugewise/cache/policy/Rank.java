package io.hugewise.cache.policy;

import java.util.random.RandomGenerator;

/// Ranks of entries that compete: those of a window with those of the main log.
public final class Rank {
    /// A main segment stays unless more of its entries lose than this share, and more than by [#chance] and this share.
    public static final double LEAST_WINNERS = 0.05;
    /// A main segment that was not beaten so often goes behind the others. Not each time: the ranks of its entries are known.
    public static final int MOST_DEFENCES = 8;
    /// An entry that was requested so often is replaced only by one that was requested twice more often.
    private static final int ESTABLISHED = 3;
    private static final int PROBES = 128;

    private Rank() {}

    /// The rank of an entry.
    ///
    /// @param frequency how often its key was requested
    /// @param isMain whether it is in the main log
    /// @return the rank, which is greater for better entries, and odd for those of the main log
    public static int of(int frequency, boolean isMain) {
        return 2 * frequency + (!isMain ? 0 : frequency < ESTABLISHED ? 1 : 3);
    }

    /// Share of keys that would have a greater rank when they are requested for the first time, because they have counters
    /// in common with others. Estimated by random hashes.
    ///
    /// @param sketch the frequencies
    /// @param random makes the hashes
    /// @param rank the rank
    /// @return the share
    public static double chance(FrequencySketch sketch, RandomGenerator random, long rank) {
        int greater = 0;
        for (int i = 0; i < PROBES; i++) {
            greater += of(sketch.frequency(random.nextLong()) + 1, false) > rank ? 1 : 0;
        }
        return (double) greater / PROBES;
    }

    /// Whether the entry of a rank is in the main log.
    ///
    /// @param rank its rank
    /// @return whether it is
    public static boolean isMain(long rank) {
        return (rank & 1) != 0;
    }
}
