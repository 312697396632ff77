package io.hugewise.cache;

/// Counts of the values on the heap; [CacheStats] has the hits of both tiers.
///
/// @param hits reads that found a value on the heap, since the cache was created
/// @param entries number of values on the heap
/// @param weight sum of their weights
public record HeapStats(long hits, long entries, long weight) {}
