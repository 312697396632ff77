package io.hugewise.cache;

/// Decides what becomes of a change that the store refuses again and again, while it accepts others: a value that is too
/// long for its column, for example.
///
/// @param <K> type of keys
/// @param <V> type of values
@FunctionalInterface
public interface RefusedChange<K, V> {
    /// What becomes of a change.
    enum Decision {
        /// It stays in the cache, and is tried again with pauses of up to a minute. [HugeCache#flush] and [HugeCache#close]
        /// throw an [UnwrittenException] as long as there is one.
        KEEP,
        /// It is not tried again, and its entry is removed from the cache.
        DROP
    }

    /// Decides it. The thread that writes changes of all keys calls it, so it should end soon. To divert a change, write it
    /// elsewhere and drop it. If it throws, the change is kept.
    ///
    /// @param change the change
    /// @param attempts how often it was tried
    /// @param error what the store has thrown last
    /// @return what becomes of it
    Decision refused(CacheWriter.Change<K, V> change, int attempts, Throwable error);
}
