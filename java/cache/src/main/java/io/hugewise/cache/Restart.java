package io.hugewise.cache;

/// How a cache began.
///
/// @param kind whether it has entries of an earlier process
/// @param reason why entries of an earlier process were removed, or searched for; empty if they were not, or the process
///     did not close the cache
public record Restart(Kind kind, String reason) {
    /// Whether a cache has entries of an earlier process.
    public enum Kind {
        /// There was no file, or the cache has none.
        NEW,
        /// It has all entries of a cache that was closed, and the file is as that process left it.
        WARM,
        /// It has the intact entries of a process that ended without closing the cache, or of a file that was changed
        /// since.
        RECOVERED,
        /// The file did not match, so its entries were removed.
        EMPTY
    }
}
