package io.hugewise.cache.policy;

/// The window's share of the memory, found by ghosts as in ARC (Megiddo, Modha, "ARC: A Self-Tuning, Low Overhead
/// Replacement Cache", FAST '03): hashes of entries that were evicted lately, as many of the window as of the main log.
/// If a missing key is a ghost of the window, a larger window would have kept it.
///
/// Any thread may call [#missed]; steps that happen at the same time may be lost. Others need a lock.
public final class WindowSize {
    private static final double FIRST = 0.02;
    private static final double LEAST = 0.01;
    private static final double MOST = 0.8;
    /// Entries for each ghost of a log.
    private static final int ENTRIES_PER_GHOST = 32;
    /// Of more, only those of some hashes are kept.
    private static final int MAX_GHOSTS = 4096;
    /// A smaller or greater change of their number is a reason to begin again.
    private static final double CHANGE = 0.1;
    /// Entries by which the window grows for a ghost.
    private static final int STEP = 4;
    /// Entries by which it shrinks for one of the main log.
    private static final int STEP_BACK = 3 * STEP;

    private volatile double share = FIRST;
    private volatile Ghosts ghosts = new Ghosts(1, 0, 1);

    /// Marks of hashes, of which one is remembered at each place.
    private static final class Ghosts {
        final short[] window;
        final short[] main;
        /// Number of bits of the hash that are 0 in all of them.
        final int sampling;
        final long entries;

        Ghosts(short[] window, short[] main, int sampling, long entries) {
            this.window = window;
            this.main = main;
            this.sampling = sampling;
            this.entries = entries;
        }

        Ghosts(int count, int sampling, long entries) {
            this(new short[count], new short[count], sampling, entries);
        }

        boolean has(long hash) {
            return ((hash >>> 40) & ((1L << sampling) - 1)) == 0;
        }

        int place(long hash) {
            return (int) (((hash * 0x9E37_79B9_7F4A_7C15L) >>> 33) % window.length);
        }

        /// The mark of a key in the table. It is never 0, which stands for a place without a ghost.
        static short mark(long hash) {
            return (short) ((hash >>> 20) | 1);
        }

        static boolean take(short[] marks, int place, short mark) {
            boolean isThere = marks[place] == mark;
            if (isThere) {
                marks[place] = 0;
            }
            return isThere;
        }
    }

    /// Creates one for a cache of unknown size.
    public WindowSize() {}

    /// Creates one that goes on with a share.
    ///
    /// @param share that of an earlier one; 0 for none
    public WindowSize(double share) {
        this.share = share == 0 ? FIRST : Math.clamp(share, LEAST, MOST);
    }

    /// Keeps as many ghosts as are good for a number of entries.
    ///
    /// @param entries the number that there will be
    public void expect(long entries) {
        long count = Math.max(1, entries / ENTRIES_PER_GHOST);
        int sampling = 0;
        while (count >> sampling > MAX_GHOSTS) {
            sampling++;
        }
        int kept = (int) (count >> sampling);
        Ghosts before = ghosts;
        boolean isSimilar = sampling == before.sampling && Math.abs(kept - before.window.length) <= CHANGE * before.window.length;
        ghosts = isSimilar ? new Ghosts(before.window, before.main, sampling, entries) : new Ghosts(kept, sampling, entries);
    }

    /// {@return the share, from 0 to 1}
    public double share() {
        return share;
    }

    /// Adapts the share to a key that was requested and is not there.
    ///
    /// @param hash its hash
    public void missed(long hash) {
        Ghosts of = ghosts;
        if (of.has(hash)) {
            int place = of.place(hash);
            short mark = Ghosts.mark(hash);
            int step = (Ghosts.take(of.window, place, mark) ? STEP : 0) - (Ghosts.take(of.main, place, mark) ? STEP_BACK : 0);
            if (step != 0) {
                share = Math.clamp(share + (double) ((long) step << of.sampling) / of.entries, LEAST, MOST);
            }
        }
    }

    /// Remembers an entry that is evicted.
    ///
    /// @param hash hash of its key
    /// @param isMain whether it was in the main log
    public void evicted(long hash, boolean isMain) {
        Ghosts of = ghosts;
        if (of.has(hash)) {
            (isMain ? of.main : of.window)[of.place(hash)] = Ghosts.mark(hash);
        }
    }
}
