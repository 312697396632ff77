package io.hugewise.cache.simulation;

/// SIEVE (Zhang et al., NSDI '24): a hand moves from old to new keys, spares those that were used since it last came
/// by, and evicts the first other one.
final class Sieve implements Policy {
    private final int[] sizes;
    private final boolean[] present;
    private final boolean[] used;
    private final Chain chain;
    private int hand = -1;
    private long free;

    Sieve(long capacity, int[] sizes) {
        this.sizes = sizes;
        this.present = new boolean[sizes.length];
        this.used = new boolean[sizes.length];
        this.chain = new Chain(sizes.length);
        this.free = capacity;
    }

    @Override
    public boolean request(int key) {
        if (present[key]) {
            used[key] = true;
            return true;
        }
        free -= sizes[key];
        while (free < 0 && chain.oldest() >= 0) {
            evict();
        }
        if (free < 0) {
            free += sizes[key];
            return false;
        }
        chain.add(key);
        present[key] = true;
        used[key] = false;
        return false;
    }

    private void evict() {
        int key = hand < 0 ? chain.oldest() : hand;
        while (used[key]) {
            used[key] = false;
            int next = chain.newerThan(key);
            key = next < 0 ? chain.oldest() : next;
        }
        hand = chain.newerThan(key);
        chain.remove(key);
        present[key] = false;
        free += sizes[key];
    }
}
