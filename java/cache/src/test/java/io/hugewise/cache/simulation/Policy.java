package io.hugewise.cache.simulation;

/// A cache of keys without values, which adds each key that it misses.
interface Policy {
    /// Requests a key, and adds it if it is missing and fits.
    ///
    /// @return whether it was there
    boolean request(int key);
}
