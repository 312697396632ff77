package io.hugewise.cache;

/// How a cache began.
///
/// @param kind whether it has entries of an earlier process
/// @param reason why entries of an earlier process were removed; empty if none were
public record Restart(Kind kind, String reason) {
    /// Whether a cache has entries of an earlier process.
    public enum Kind {
        /// There was no file, or the cache has none.
        NEW,
        /// It has all entries of a cache that was closed.
        WARM,
        /// It has the entries of a process that ended without closing the cache.
        RECOVERED,
        /// The file did not match, so its entries were removed.
        EMPTY
    }
}
