package io.hugewise.cache;

/// Is called after an entry was removed.
///
/// @param <K> type of keys
/// @param <V> type of values
@FunctionalInterface
public interface RemovalListener<K, V> {
    /// Is called once for each removed entry, by the executor of the cache.
    ///
    /// @param key its key
    /// @param value its value
    /// @param cause why it was removed
    void onRemoval(K key, V value, RemovalCause cause);
}
