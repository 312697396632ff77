package io.hugewise.cache;

import java.util.BitSet;

/// Closed segments that were taken from their log to be emptied. Each is retired then, or returned, also if an error is
/// thrown in between: its entries are in the index until they are moved or dropped.
///
/// Methods need the lock of evictions.
final class Emptying {
    private final Retired retired;
    private final BitSet taken;

    Emptying(Segments segments, Retired retired) {
        this.retired = retired;
        this.taken = new BitSet(segments.pool.count());
    }

    /// Takes the segment at a place of a queue.
    int take(IntQueue from, int place) {
        int segment = from.get(place);
        from.remove(place);
        taken.set(segment);
        return segment;
    }

    /// Takes the oldest segment.
    int take(IntQueue from) {
        int segment = from.take();
        taken.set(segment);
        return segment;
    }

    /// Retires a segment of which the index has no entry any more.
    void retire(int segment) {
        retired.add(segment);
        taken.clear(segment);
    }

    /// Returns a segment as the newest of a queue.
    void returnTo(IntQueue to, int segment) {
        to.add(segment);
        taken.clear(segment);
    }

    /// Returns a segment as the oldest of a queue.
    void returnFirst(IntQueue to, int segment) {
        to.addFirst(segment);
        taken.clear(segment);
    }

    /// Returns all to a queue, after an error.
    void returnAll(IntQueue to) {
        for (int segment = taken.nextSetBit(0); segment >= 0; segment = taken.nextSetBit(segment)) {
            returnTo(to, segment);
        }
    }
}
