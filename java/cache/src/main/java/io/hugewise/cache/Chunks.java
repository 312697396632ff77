package io.hugewise.cache;

import io.hugewise.cache.Manifest.Use;
import java.util.BitSet;

/// Segments that are cut into equal chunks, which have the values of large entries. A chunk is numbered by its segment
/// and its place in it.
///
/// ```text
/// ┌────────────────────┬─────────────────────┬────────────────────────────┬───────────┐
/// │ a part of a value  │ hash of the key     │ number of the part         │ next      │
/// │                    │ 8 bytes             │ 4 bytes                    │ 4 bytes   │
/// └────────────────────┴─────────────────────┴────────────────────────────┴───────────┘
/// ```
///
/// `next` is a link of the list of [Retired], outside of use.
///
/// The chunk with the lowest number is taken first, so the segments with the highest numbers become free.
final class Chunks {
    static final int PER_SEGMENT = 32;
    private static final long FULL = (1L << PER_SEGMENT) - 1;
    private static final int TRAILER = 16;

    /// Bytes of a chunk.
    final int size;
    private final Segments segments;
    /// Segments with free chunks. In those of other uses, the field [Segments#STATE] has a bit for each used chunk.
    private final BitSet open;
    /// Segments that are being emptied, of which no chunk is taken.
    private final BitSet emptying;
    /// Free chunks of open segments.
    private int free;

    /// Has the chunks that the manifest has.
    Chunks(Segments segments) {
        this.segments = segments;
        this.size = size(segments.size);
        // Of the full size: later, they take no memory of the heap.
        this.open = new BitSet(segments.pool.count());
        this.emptying = new BitSet(segments.pool.count());
        for (int segment : segments.withUse(Use.PART)) {
            if (used(segment) < PER_SEGMENT) {
                open.set(segment);
                free += PER_SEGMENT - used(segment);
            }
        }
    }

    static int size(int segmentSize) {
        return segmentSize / PER_SEGMENT;
    }

    /// Bytes of a value that a chunk has.
    static int capacity(int segmentSize) {
        return size(segmentSize) - TRAILER;
    }

    /// State of a segment with these used chunks. It is that of a closed one for a thread that still takes the segment for
    /// the one to append entries to.
    static long state(long mask) {
        return Log.closedAt(mask);
    }

    private long mask(int segment) {
        return segments.pool.field(segment, Segments.STATE) & FULL;
    }

    private int used(int segment) {
        return Long.bitCount(mask(segment));
    }

    long address(int chunk) {
        return address(segments, chunk);
    }

    static long address(Segments segments, int chunk) {
        return segments.address(chunk / PER_SEGMENT) + (long) (chunk % PER_SEGMENT) * size(segments.size);
    }

    // --- Owners ------------------------------------------------------------------------------------

    void setOwner(int chunk, long hash, int part) {
        Memory.setLong(trailer(chunk), hash);
        Memory.setInt(trailer(chunk) + Long.BYTES, part);
    }

    /// Hash of the key whose value has the chunk, if it is used.
    long hash(int chunk) {
        return Memory.getLong(trailer(chunk));
    }

    /// Number of the part of the value.
    int part(int chunk) {
        return Memory.getInt(trailer(chunk) + Long.BYTES);
    }

    /// The chunk after one that is not used any more in a list.
    int next(int chunk) {
        return Memory.getInt(trailer(chunk) + Long.BYTES + Integer.BYTES);
    }

    void setNext(int chunk, int next) {
        Memory.setInt(trailer(chunk) + Long.BYTES + Integer.BYTES, next);
    }

    private long trailer(int chunk) {
        return address(chunk) + size - TRAILER;
    }

    // --- Taking ------------------------------------------------------------------------------------

    /// Takes a chunk, for which a segment is taken if `spared` others remain free.
    ///
    /// @return its number, or -1
    synchronized int tryTake(int spared) {
        int segment = open.nextSetBit(0);
        if (segment < 0) {
            segment = segments.tryTake(spared);
            if (segment < 0) {
                return -1;
            }
            segments.pool.setField(segment, Segments.STATE, state(0));
            segments.manifest.setUse(segment, Use.PART, 0);
            open.set(segment);
            free += PER_SEGMENT;
        }
        int place = Long.numberOfTrailingZeros(~mask(segment));
        setMask(segment, mask(segment) | 1L << place);
        free--;
        return segment * PER_SEGMENT + place;
    }

    private void setMask(int segment, long mask) {
        segments.pool.setField(segment, Segments.STATE, state(mask));
        open.set(segment, mask != FULL && !emptying.get(segment));
    }

    /// Makes a chunk free, and its segment if it has no other.
    synchronized void give(int chunk) {
        int segment = chunk / PER_SEGMENT;
        boolean isOpen = !emptying.get(segment);
        free += isOpen ? 1 : 0;
        setMask(segment, mask(segment) & ~(1L << chunk % PER_SEGMENT));
        if (mask(segment) == 0) {
            free -= isOpen ? PER_SEGMENT : 0;
            open.clear(segment);
            emptying.clear(segment);
            segments.release(segment);
        }
    }

    // --- Emptying ----------------------------------------------------------------------------------

    /// Chooses the segment with the fewest used chunks, if other segments have as many free ones. None of its chunks is
    /// taken any more.
    ///
    /// @param excluded segments that are not chosen
    /// @return its number, or -1
    synchronized int beginEmptying(BitSet excluded) {
        int fewest = PER_SEGMENT;
        int chosen = -1;
        for (BitSet of : new BitSet[] {emptying, open}) {
            for (int segment = of.nextSetBit(0); segment >= 0; segment = of.nextSetBit(segment + 1)) {
                int used = used(segment);
                int others = free - (open.get(segment) ? PER_SEGMENT - used : 0);
                if (used < fewest && used <= others && !excluded.get(segment)) {
                    fewest = used;
                    chosen = segment;
                }
            }
        }
        if (chosen >= 0 && open.get(chosen)) {
            open.clear(chosen);
            emptying.set(chosen);
            free -= PER_SEGMENT - fewest;
        }
        return chosen;
    }

    /// Free chunks of segments that are not being emptied.
    synchronized int free() {
        return free;
    }

    /// Whether a chunk is used by a value, or will be.
    boolean isUsed(int chunk) {
        return (mask(chunk / PER_SEGMENT) >>> chunk % PER_SEGMENT & 1) != 0;
    }
}
