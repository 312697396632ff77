package io.hugewise.cache;

/// Remembers hashes that were seen recently, until others take their place: 16 bits of each.
final class Doorkeeper {
    private final short[] seen;

    /// @param count largest number of remembered hashes, a power of two
    Doorkeeper(int count) {
        seen = new short[count];
    }

    /// Whether a hash was seen recently; it is remembered.
    boolean isSecond(long hash) {
        int at = (int) (hash >>> 16) & seen.length - 1;
        // Never 0, as nothing was seen at first.
        short mark = (short) (hash >>> 48 | 1);
        if (seen[at] == mark) {
            return true;
        }
        seen[at] = mark;
        return false;
    }
}
