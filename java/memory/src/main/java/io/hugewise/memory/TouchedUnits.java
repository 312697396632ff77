package io.hugewise.memory;

import java.util.Arrays;

/// Units that may be resident, and not zero: a bit for each, in a word for each chunk.
final class TouchedUnits {
    private final long[] words;

    /// @param isFresh whether no unit was written yet
    TouchedUnits(int chunks, boolean isFresh) {
        this.words = new long[chunks];
        Arrays.fill(words, isFresh ? 0 : -1);
    }

    /// Those of a chunk.
    long of(int chunk) {
        return Atomics.get(words, chunk);
    }

    void touch(int chunk, long bits) {
        Atomics.set(words, chunk, bits);
    }

    void untouch(int chunk, long bits) {
        Atomics.clear(words, chunk, bits);
    }

    /// Bytes of pages with a touched unit.
    long bytes(long pageSize) {
        int chunksOfPage = (int) (pageSize >>> Units.UNIT_LOG2 >>> Units.CHUNK_LOG2);
        long bytes = 0;
        for (int chunk = 0; chunk < words.length; chunk += Math.max(1, chunksOfPage)) {
            if (chunksOfPage == 0) {
                bytes += (long) Long.bitCount(of(chunk)) << Units.UNIT_LOG2;
            } else {
                bytes += isAnyOf(chunk, chunksOfPage) ? pageSize : 0;
            }
        }
        return bytes;
    }

    private boolean isAnyOf(int first, int chunks) {
        for (int chunk = first; chunk < Math.min(words.length, first + chunks); chunk++) {
            if (of(chunk) != 0) {
                return true;
            }
        }
        return false;
    }
}
