package io.hugewise.cache;

/// What became of an entry that was to be put.
enum Outcome {
    ADDED,
    /// The present entry did not satisfy the condition.
    UNWANTED,
    /// No memory was free, or it was too large. The old entry was removed.
    REJECTED
}
