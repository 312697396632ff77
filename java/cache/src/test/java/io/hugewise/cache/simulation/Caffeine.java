package io.hugewise.cache.simulation;

import com.github.benmanes.caffeine.cache.Cache;

/// Caffeine itself, bounded by the weight of its entries.
final class Caffeine implements Policy {
    private final Cache<Integer, Boolean> cache;

    Caffeine(long capacity, int[] sizes) {
        var builder = com.github.benmanes.caffeine.cache.Caffeine.newBuilder().executor(Runnable::run);
        boolean equal = java.util.Arrays.stream(sizes).allMatch(size -> size == 1);
        this.cache = equal
                ? builder.maximumSize(capacity).build()
                : builder.maximumWeight(capacity).weigher((Integer key, Boolean _) -> sizes[key]).build();
    }

    @Override
    public boolean request(int key) {
        if (cache.getIfPresent(key) != null) {
            return true;
        }
        cache.put(key, true);
        return false;
    }
}
