package io.hugewise.cache.simulation;

/// Evicts the key that was used least recently.
final class Lru implements Policy {
    private final int[] sizes;
    private final boolean[] present;
    private final Chain chain;
    private long free;

    Lru(long capacity, int[] sizes) {
        this.sizes = sizes;
        this.present = new boolean[sizes.length];
        this.chain = new Chain(sizes.length);
        this.free = capacity;
    }

    @Override
    public boolean request(int key) {
        if (present[key]) {
            chain.remove(key);
            chain.add(key);
            return true;
        }
        chain.add(key);
        present[key] = true;
        free -= sizes[key];
        while (free < 0) {
            int victim = chain.oldest();
            chain.remove(victim);
            present[victim] = false;
            free += sizes[victim];
        }
        return false;
    }
}
