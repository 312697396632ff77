package io.hugewise.cache;

/// Counts since a cache was created.
///
/// @param hits reads that found an entry
/// @param misses reads that found none
/// @param puts entries that were added or replaced, also by loads
/// @param hitBytes bytes of the values that reads found
/// @param missBytes bytes of the values that were loaded after a miss
/// @param evictions entries that were removed because memory was needed or they had expired
/// @param evictedBytes bytes of these entries
/// @param rejections entries that were not added because no memory could be freed, or they were too large
/// @param insertedBytes bytes of added entries, with their keys and headers
/// @param movedBytes bytes of entries that were moved to be kept
/// @param loads loads that returned values
/// @param failedLoads loads that returned none, or threw an exception
/// @param loadNanos time that loads took, in nanoseconds
/// @param health what has failed in the background
public record CacheStats(long hits, long misses, long puts, long hitBytes, long missBytes, long evictions, long evictedBytes,
        long rejections, long insertedBytes, long movedBytes, long loads, long failedLoads, long loadNanos, CacheHealth health) {
    /// {@return the share of reads that found an entry; 1 without reads}
    public double hitRatio() {
        return ratio(hits, misses);
    }

    /// {@return the share of the bytes of values that reads found, of these and the loaded ones; 1 without any}
    public double byteHitRatio() {
        return ratio(hitBytes, missBytes);
    }

    /// {@return the mean time of a load in nanoseconds; 0 without loads}
    public double meanLoadNanos() {
        return loads + failedLoads == 0 ? 0 : (double) loadNanos / (loads + failedLoads);
    }

    private static double ratio(long of, long others) {
        return of + others == 0 ? 1 : (double) of / (of + others);
    }
}
