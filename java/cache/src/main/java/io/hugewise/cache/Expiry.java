package io.hugewise.cache;

import java.time.Duration;

/// Determines when each entry expires. An entry expires at once if the duration is zero or negative.
///
/// @param <K> type of keys
/// @param <V> type of values
@FunctionalInterface
public interface Expiry<K, V> {
    /// Determines when an entry expires that is added.
    ///
    /// @param key its key
    /// @param value its value
    /// @return time until then; rounded down to 32 ms
    Duration expireAfterCreate(K key, V value);

    /// Determines when an entry expires whose value is replaced; by default as if it were added.
    ///
    /// @param key its key
    /// @param value its new value
    /// @param remaining time until it would expire without the change
    /// @return time until it expires
    default Duration expireAfterUpdate(K key, V value, Duration remaining) {
        return expireAfterCreate(key, value);
    }

    /// Determines when an entry expires whose value is read, except by [HugeCache#read] and the map's methods; by
    /// default a read does not change it.
    ///
    /// @param key its key
    /// @param value its value
    /// @param remaining time until it would expire without the read
    /// @return time until it expires
    default Duration expireAfterRead(K key, V value, Duration remaining) {
        return remaining;
    }
}
