package io.hugewise.cache.policy;

/// The window's share of the memory, found by hill climbing as in Caffeine: it goes on in the direction in which the
/// hit ratio grew, with steps that get smaller.
public final class WindowSize {
    private static final double FIRST = 0.02;
    private static final double LEAST = 0.01;
    private static final double MOST = 0.8;
    private static final double STEP = 0.0625;
    private static final double DECAY = 0.98;
    /// A greater change of the hit ratio begins with full steps again.
    private static final double RESTART = 0.05;
    private static final int REQUESTS_PER_ENTRY = 10;

    private long period = REQUESTS_PER_ENTRY;
    private double share = FIRST;
    private double step = -STEP;
    private double previousRatio;
    private long requests;
    private long hits;

    /// Creates one for a cache of unknown size.
    public WindowSize() {}

    /// Creates one that goes on with a share.
    ///
    /// @param share that of an earlier one; 0 for none
    public WindowSize(double share) {
        this.share = share == 0 ? FIRST : Math.clamp(share, LEAST, MOST);
    }

    /// Takes the hit ratio from as many requests as are good for a number of entries.
    ///
    /// @param entries the number that there will be
    public void expect(long entries) {
        period = REQUESTS_PER_ENTRY * entries;
    }

    /// {@return the share, from 0 to 1}
    public double share() {
        return share;
    }

    /// Adds requests, of which some were hits, and changes the share if there were enough.
    ///
    /// @param count number of requests
    /// @param hit how many of them were hits
    public void requested(long count, long hit) {
        requests += count;
        hits += hit;
        if (requests < period) {
            return;
        }
        double ratio = (double) hits / requests;
        double change = ratio - previousRatio;
        double amount = change >= 0 ? step : -step;
        step = Math.abs(change) >= RESTART ? Math.copySign(STEP, amount) : DECAY * amount;
        share = Math.clamp(share + amount, LEAST, MOST);
        previousRatio = ratio;
        requests = 0;
        hits = 0;
    }
}
