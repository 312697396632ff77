package io.hugewise.cache;

import java.util.Arrays;

/// Where the first entry begins in each of the equal pieces of a segment, as far as it is known: not for segments from
/// before a restart.
///
/// Who appends an entry calls [#appended] before the entry is written; who reads waits for that.
final class Starts {
    static final int PIECES = 16;

    /// A piece has two to the power of this many bytes.
    private final int shift;
    /// For each piece of each segment, an offset in the segment; 0 if it is unknown.
    private final int[] offsets;

    Starts(int segments, int segmentSize) {
        this.shift = Integer.SIZE - Integer.numberOfLeadingZeros((segmentSize - 1) / PIECES);
        this.offsets = new int[Math.multiplyExact(segments, PIECES)];
    }

    void clear(int segment) {
        Arrays.fill(offsets, segment * PIECES, (segment + 1) * PIECES, 0);
    }

    /// Notes where the entry after an appended one begins, if that is in another piece.
    void appended(int segment, long position, long end) {
        int piece = (int) (end >>> shift);
        if (piece != (int) (position >>> shift) && piece < PIECES) {
            offsets[segment * PIECES + piece] = (int) end;
        }
    }

    /// Offset of the first entry that begins in a piece; 0 if it is unknown, and of the first piece.
    int of(int segment, int piece) {
        return offsets[segment * PIECES + piece];
    }
}
