package io.hugewise.cache;

import java.util.Arrays;

/// The bytes of a key and their hash, as a key of maps on the heap.
final class KeyBytes {
    final byte[] bytes;
    final long hash;

    KeyBytes(byte[] bytes, long hash) {
        this.bytes = bytes;
        this.hash = hash;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof KeyBytes key && hash == key.hash && Arrays.equals(bytes, key.bytes);
    }

    @Override
    public int hashCode() {
        return Long.hashCode(hash);
    }
}
