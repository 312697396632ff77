package io.hugewise.cache;

/// Layout of a word of the index.
///
/// ```text
///  63    62..61  60..24                     23..0
/// ┌──────┬──────┬──────────────────────────┬──────────────────┐
/// │ link │ uses │ offset of the entry / 4  │ hash, bits 8..31 │
/// └──────┴──────┴──────────────────────────┴──────────────────┘
/// ```
///
/// A link has the number of an overflow bucket instead. 0 is an empty slot.
final class IndexWord {
    static final int MOST_USES = 3;
    /// Lowest bit of the hash that a word has.
    static final int TAG_SHIFT = 8;
    private static final long TAG = 0xFF_FFFF;
    private static final int LOCATION_SHIFT = 24;
    private static final long LOCATION = (1L << 37) - 1;
    private static final int USES_SHIFT = 61;
    private static final long SAME = LOCATION << LOCATION_SHIFT | TAG;

    private IndexWord() {}

    /// @param offset offset of the entry in the memory of all segments
    static long of(long offset, long hash) {
        return (offset / Entries.ALIGNMENT) << LOCATION_SHIFT | tag(hash);
    }

    static long tag(long hash) {
        return hash >>> TAG_SHIFT & TAG;
    }

    /// The bits of the hash that the word has, where the hash has them.
    static long hashBits(long word) {
        return (word & TAG) << TAG_SHIFT;
    }

    static boolean isOf(long word, long tag) {
        return word > 0 && (word & TAG) == tag;
    }

    /// Whether both are of the same entry.
    static boolean isSame(long word, long other) {
        return word > 0 && (word & SAME) == (other & SAME);
    }

    static long offset(long word) {
        return (word >>> LOCATION_SHIFT & LOCATION) * Entries.ALIGNMENT;
    }

    static int uses(long word) {
        return (int) (word >>> USES_SHIFT) & MOST_USES;
    }

    static long withUses(long word, int uses) {
        return (word & ~((long) MOST_USES << USES_SHIFT)) | (long) uses << USES_SHIFT;
    }

    static boolean isLink(long word) {
        return word < 0;
    }

    static long link(long overflowBucket) {
        return overflowBucket | Long.MIN_VALUE;
    }

    /// Number of the overflow bucket of a link.
    static long overflowBucket(long link) {
        return link & Long.MAX_VALUE;
    }
}
