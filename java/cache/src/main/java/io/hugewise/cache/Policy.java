package io.hugewise.cache;

import java.time.Duration;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/// What the options of a cache allow to read and to change while it is in use.
///
/// @param <K> type of keys
/// @param <V> type of values
public final class Policy<K, V> {
    private final HugeCache<K, V> cache;
    private final ObjectStore<K, V> objects;
    private final long refreshNanos;

    Policy(HugeCache<K, V> cache, ObjectStore<K, V> objects, long refreshNanos) {
        this.cache = cache;
        this.objects = objects;
        this.refreshNanos = refreshNanos;
    }

    /// Returns a value. This does not count as a use, nor in statistics.
    ///
    /// @param key its key
    /// @return the value; null if it is not in the cache
    public @Nullable V getIfPresentQuietly(K key) {
        return objects.peek(key);
    }

    /// {@return the limit of the memory}
    public Eviction eviction() {
        return new Eviction(cache);
    }

    /// {@return the time after which entries expire that were written; empty if they do not}
    public Optional<FixedExpiration> expireAfterWrite() {
        return objects.expiration.writeNanos == 0 ? Optional.empty() : Optional.of(new FixedExpiration(true));
    }

    /// {@return the time after which entries expire that were used; empty if they do not}
    public Optional<FixedExpiration> expireAfterAccess() {
        return objects.expiration.accessNanos == 0 ? Optional.empty() : Optional.of(new FixedExpiration(false));
    }

    /// {@return the times at which single entries expire; empty if the cache was built without expiry}
    public Optional<VarExpiration> expireVariably() {
        return objects.expiration.isPossible ? Optional.of(new VarExpiration()) : Optional.empty();
    }

    /// {@return the time after which values are loaded again; empty if they are not}
    public Optional<Duration> refreshAfterWrite() {
        return refreshNanos == 0 ? Optional.empty() : Optional.of(Duration.ofNanos(refreshNanos));
    }

    /// The limit of the memory.
    public static final class Eviction {
        private final HugeCache<?, ?> cache;

        private Eviction(HugeCache<?, ?> cache) {
            this.cache = cache;
        }

        /// {@return the bytes in use}
        public long weightedSize() {
            return cache.usedBytes();
        }

        /// {@return the limit in bytes}
        public long getMaximum() {
            return cache.maximumBytes();
        }

        /// Changes the limit as [HugeCache#setMaximumBytes] does.
        ///
        /// @param bytes the limit
        public void setMaximum(long bytes) {
            var _ = cache.setMaximumBytes(bytes);
        }
    }

    /// The time after which all entries expire.
    public final class FixedExpiration {
        private final boolean isAfterWrite;

        private FixedExpiration(boolean isAfterWrite) {
            this.isAfterWrite = isAfterWrite;
        }

        /// {@return the time from the write or the use on}
        public Duration getExpiresAfter() {
            return Duration.ofNanos(isAfterWrite ? objects.expiration.writeNanos : objects.expiration.accessNanos);
        }

        /// Changes the time. It counts for entries that are written or used from now on.
        ///
        /// @param duration the time
        public void setExpiresAfter(Duration duration) {
            long nanos = Clock.nanos(duration);
            if (isAfterWrite) {
                objects.expiration.writeNanos = nanos;
            } else {
                objects.expiration.accessNanos = nanos;
            }
        }
    }

    /// The times at which single entries expire.
    public final class VarExpiration {
        private VarExpiration() {}

        /// Returns when an entry expires.
        ///
        /// @param key its key
        /// @return time until then, about 292 years if it does not expire; empty if it is not in the cache
        public Optional<Duration> getExpiresAfter(K key) {
            Integer expiry = objects.peek(objects.keyBytes(key), objects.store.entries::expiry);
            return expiry == null ? Optional.empty() : Optional.of(objects.expiration.remaining(expiry));
        }

        /// Changes when an entry expires, if it is in the cache.
        ///
        /// @param key its key
        /// @param duration time until then
        public void setExpiresAfter(K key, Duration duration) {
            objects.setExpiry(key, objects.expiryAfter(duration));
        }

        /// Adds or replaces a value.
        ///
        /// @param key its key
        /// @param value the value
        /// @param duration time until it expires
        public void put(K key, V value, Duration duration) {
            cache.put(key, value, duration);
        }

        /// Adds a value if there is none for its key.
        ///
        /// @param key its key
        /// @param value the value
        /// @param duration time until it expires
        /// @return the present value; null if there was none
        public @Nullable V putIfAbsent(K key, V value, Duration duration) {
            return objects.putIfAbsent(key, value, objects.expiryAfter(duration));
        }
    }
}
