package io.hugewise.cache;

/// Finds all entries of a closed segment, in any order.
///
/// To find an entry, the size of the one before must be read. The cursor reads at several places of the segment in turn,
/// so the CPU waits for several cache lines at the same time.
final class SegmentCursor {
    private final Entries layout;
    /// Addresses of the next entry at each place, and of where the place ends.
    private final long[] next = new long[Starts.PIECES];
    private final long[] ends = new long[Starts.PIECES];
    private int places;

    /// Waits until all entries of the segment are written.
    SegmentCursor(Segments segments, Entries layout, int segment) {
        this.layout = layout;
        long base = segments.address(segment);
        long end = Log.end(segments, segment);
        next[places++] = base;
        for (int piece = 1; piece < Starts.PIECES; piece++) {
            int start = segments.starts.of(segment, piece);
            if (start != 0 && start < end) {
                ends[places - 1] = base + start;
                next[places++] = base + start;
            }
        }
        ends[places - 1] = base + end;
        removeEnded();
    }

    /// Writes addresses of further entries to an array, of at least [Starts#PIECES].
    ///
    /// @return how many there are; 0 at the end
    int next(long[] entries) {
        int count = 0;
        while (places > 0 && count + places <= entries.length) {
            for (int i = 0; i < places; i++) {
                entries[count++] = next[i];
                next[i] += layout.size(next[i]);
            }
            removeEnded();
        }
        return count;
    }

    private void removeEnded() {
        int kept = 0;
        for (int i = 0; i < places; i++) {
            next[kept] = next[i];
            ends[kept] = ends[i];
            kept += next[i] < ends[i] ? 1 : 0;
        }
        places = kept;
    }
}
