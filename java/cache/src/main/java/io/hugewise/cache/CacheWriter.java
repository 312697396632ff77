package io.hugewise.cache;

import java.util.List;
import org.jspecify.annotations.Nullable;

/// Writes changes of a cache to a store. With write-back, one thread calls it; with write-through, the threads that
/// change entries do.
///
/// @param <K> type of keys
/// @param <V> type of values
@FunctionalInterface
public interface CacheWriter<K, V> {
    /// Writes changes. If it throws an exception, any of them may have been written; with write-back it is called again.
    ///
    /// @param changes the changes, each of another key
    /// @throws Exception if they could not be written
    void writeAll(List<Change<K, V>> changes) throws Exception;

    /// A change of an entry.
    ///
    /// @param key its key
    /// @param value its value; null if it was removed
    /// @param <K> type of keys
    /// @param <V> type of values
    record Change<K, V>(K key, @Nullable V value) {
        /// {@return whether the entry was removed}
        public boolean isRemoval() {
            return value == null;
        }
    }
}
