package io.hugewise.cache.simulation;

/// The window's share of the capacity, found by hill climbing as in Caffeine: it goes on in the direction in which the
/// hit ratio grew, with steps that get smaller.
final class WindowSize {
    private static final double FIRST = 0.02;
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

    /// Takes the hit ratio from as many requests as are good for a number of entries.
    void grow(long entries) {
        period = REQUESTS_PER_ENTRY * entries;
    }

    double share() {
        return share;
    }

    void requested(boolean hit) {
        if (requests >= period) {
            climb();
        }
        requests++;
        hits += hit ? 1 : 0;
    }

    private void climb() {
        double ratio = (double) hits / requests;
        double change = ratio - previousRatio;
        double amount = change >= 0 ? step : -step;
        step = Math.abs(change) >= RESTART ? Math.copySign(STEP, amount) : DECAY * amount;
        share = Math.clamp(share + amount, FIRST, MOST);
        previousRatio = ratio;
        requests = 0;
        hits = 0;
    }
}
