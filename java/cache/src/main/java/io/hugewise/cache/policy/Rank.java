package io.hugewise.cache.policy;

/// Ranks of entries that compete: those of a window with those of the main log.
public final class Rank {
    /// With at most this share of winners among the entries of the window, the main segment stays.
    public static final double LEAST_WINNERS = 0.05;
    /// A main segment that was not beaten so often goes behind the others. Not each time: that of before is in the caches
    /// of the CPU.
    public static final int MOST_DEFENCES = 8;
    /// An entry that was requested so often is replaced only by one that was requested twice more often.
    private static final int ESTABLISHED = 3;

    private Rank() {}

    /// The rank of an entry.
    ///
    /// @param frequency how often its key was requested
    /// @param isMain whether it is in the main log
    /// @return the rank, which is greater for better entries, and odd for those of the main log
    public static int of(int frequency, boolean isMain) {
        return 2 * frequency + (!isMain ? 0 : frequency < ESTABLISHED ? 1 : 3);
    }

    /// Whether the entry of a rank is in the main log.
    ///
    /// @param rank its rank
    /// @return whether it is
    public static boolean isMain(long rank) {
        return (rank & 1) != 0;
    }
}
