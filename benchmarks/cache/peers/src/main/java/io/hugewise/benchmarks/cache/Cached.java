package io.hugewise.benchmarks.cache;

/// What all compared caches do: return a value as an object, and add or replace one.
interface Cached {
    /// {@return the value of a key; null if it is not there}
    byte[] get(Key key);

    /// Adds or replaces a value. Caches in front of records, which are full from the start, cannot.
    default void put(Key key, byte[] value) {
        throw new UnsupportedOperationException("these records can only be read");
    }

    /// {@return the number of reads of files so far; 0 without files}
    default long fileReads() {
        return 0;
    }
}
