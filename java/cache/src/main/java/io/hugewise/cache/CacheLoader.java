package io.hugewise.cache;

import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/// Loads values that are not in the cache, or that are old.
///
/// @param <K> type of keys
/// @param <V> type of values
@FunctionalInterface
public interface CacheLoader<K, V> {
    /// Loads a value.
    ///
    /// @param key its key
    /// @return the value; null if there is none
    /// @throws Exception if it cannot be loaded; one that is checked is wrapped in a
    ///     [java.util.concurrent.CompletionException]
    @Nullable V load(K key) throws Exception;

    /// Loads several values. By default, each is loaded by [#load].
    ///
    /// @param keys their keys
    /// @return the values by key; without the keys that have none; others may be contained and are added, too, unless the
    ///     cache has a writer
    /// @throws UnsupportedOperationException if values are to be loaded one by one
    /// @throws Exception if they cannot be loaded
    default Map<? extends K, ? extends V> loadAll(Set<? extends K> keys) throws Exception {
        throw new UnsupportedOperationException();
    }

    /// Loads a value that replaces one in the cache. By default, it is loaded by [#load].
    ///
    /// @param key its key
    /// @param old the value in the cache
    /// @return the value; null to remove the entry
    /// @throws Exception if it cannot be loaded; the value in the cache stays
    default @Nullable V reload(K key, V old) throws Exception {
        return load(key);
    }
}
