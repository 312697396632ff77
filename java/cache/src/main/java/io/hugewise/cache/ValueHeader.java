package io.hugewise.cache;

/// Data before the value of an entry, in caches whose options need it.
///
/// ```text
/// ┌──────────────────────┬─────────────────────────────┬───────┐
/// │ state for write-back │ time of the write, in ticks │ value │
/// │ 8 bytes              │ 4 bytes                     │       │
/// └──────────────────────┴─────────────────────────────┴───────┘
/// ```
///
/// @param hasState whether there is a state
/// @param hasTime whether there is a time
record ValueHeader(boolean hasState, boolean hasTime) {
    int size() {
        return (int) timeOffset() + (hasTime ? Integer.BYTES : 0);
    }

    long timeOffset() {
        return hasState ? Long.BYTES : 0;
    }
}
