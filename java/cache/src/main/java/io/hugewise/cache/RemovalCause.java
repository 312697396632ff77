package io.hugewise.cache;

/// Why an entry was removed.
public enum RemovalCause {
    /// It was removed by a call, such as [HugeCache#invalidate].
    EXPLICIT,
    /// Its value was replaced by a call.
    REPLACED,
    /// It was evicted because memory was needed.
    SIZE,
    /// It had expired.
    EXPIRED;

    /// {@return whether the cache removed it by itself}
    public boolean wasEvicted() {
        return this == SIZE || this == EXPIRED;
    }
}
