package io.hugewise.cache.policy;

/// Places in a table that grows by one place at a time (Litwin, 1980).
public final class LinearHashing {
    private LinearHashing() {}

    /// Number of the place that a hash belongs to in a table of some places.
    ///
    /// @param hash hash of a key
    /// @param places number of places
    /// @return its number
    public static int number(int hash, int places) {
        int level = Integer.highestOneBit(places);
        int number = hash & 2 * level - 1;
        return number < places ? number : number & level - 1;
    }

    /// Number of the place whose keys a place shares when it is added.
    ///
    /// @param place its number, from 1
    /// @return the number of the other
    public static int origin(int place) {
        return place - Integer.highestOneBit(place);
    }
}
