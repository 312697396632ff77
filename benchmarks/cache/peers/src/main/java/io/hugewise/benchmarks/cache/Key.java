package io.hugewise.benchmarks.cache;

/// A key of 16 bytes: a number and its hash.
record Key(long number, long hash) {
    static final int BYTES = 16;

    static Key of(long number) {
        return new Key(number, mixed(number));
    }

    /// Mixes the bits of a number (David Stafford's variant 13 of MurmurHash3's finaliser).
    static long mixed(long number) {
        long z = (number ^ (number >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    @Override
    public int hashCode() {
        return (int) (hash >>> 32);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Key(long otherNumber, long otherHash) && otherNumber == number && otherHash == hash;
    }
}
