package io.hugewise.cache;

/// Remembers hashes that were seen recently, until others take their place: 16 bits of each.
final class Doorkeeper {
    /// Remembered hashes for each entry.
    private static final int FACTOR = 4;

    private final short[] seen;

    /// @param entries a power of two
    Doorkeeper(int entries) {
        seen = new short[Math.toIntExact(Math.min((long) FACTOR * entries, 1 << 28))];
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
