package io.hugewise.cache.simulation;

import java.util.ArrayDeque;
import java.util.Arrays;

/// A log of segments, of which the oldest are evicted first: what all policies of a segmented store have in common.
abstract class Segments implements Policy {
    /// Number of segments that the capacity has.
    static final int COUNT = 64;
    static final byte MOST_USES = 3;

    /// Keys in the order in which they were appended.
    static final class Segment {
        int[] keys = new int[8];
        int count;
        long bytes;

        void add(int key, int size) {
            if (count == keys.length) {
                keys = Arrays.copyOf(keys, 2 * count);
            }
            keys[count++] = key;
            bytes += size;
        }
    }

    /// Closed segments, the oldest first, and the one that is appended to.
    final class Log {
        final ArrayDeque<Segment> closed = new ArrayDeque<>();
        Segment active = new Segment();
        long bytes;

        void append(int key) {
            entries += present[key] ? 0 : 1;
            present[key] = true;
            active.add(key, sizes[key]);
            bytes += sizes[key];
            if (active.bytes >= segmentBytes) {
                closed.add(active);
                active = new Segment();
            }
        }

        /// Removes the oldest segment; the active one if no other is left.
        Segment take() {
            Segment oldest = closed.poll();
            if (oldest == null) {
                oldest = active;
                active = new Segment();
            }
            bytes -= oldest.bytes;
            return oldest;
        }
    }

    final int[] sizes;
    final boolean[] present;
    /// Uses since the key was appended or last looked at: the two bits of the index word.
    final byte[] uses;
    final long capacity;
    final long segmentBytes;
    private long entries;
    private long expected;
    private long inserted;
    private long moved;

    Segments(long capacity, int[] sizes) {
        this.sizes = sizes;
        this.present = new boolean[sizes.length];
        this.uses = new byte[sizes.length];
        this.capacity = capacity;
        this.segmentBytes = Math.max(1, capacity / COUNT);
    }

    @Override
    public final boolean request(int key) {
        if (present[key]) {
            uses[key] = (byte) Math.min(MOST_USES, uses[key] + 1);
            return true;
        }
        missed(key);
        if (sizes[key] > capacity / 2) {
            return false;
        }
        uses[key] = 0;
        inserted += sizes[key];
        insert(key);
        while (bytes() > capacity) {
            evict();
        }
        long estimate = (long) ((double) capacity * entries / bytes());
        if (estimate > expected) {
            expected = estimate;
            expect(estimate);
        }
        return false;
    }

    void missed(int key) {}

    /// Prepares for more entries than were expected before.
    void expect(long count) {}

    abstract void insert(int key);

    abstract long bytes();

    abstract void evict();

    /// Bytes that may be moved now: at most as many as [SegmentTinyLfu#MOST_MOVED] for each inserted one.
    final long movable() {
        return (long) (SegmentTinyLfu.MOST_MOVED * inserted) - moved;
    }

    /// Removes a key whose segment was taken.
    final void remove(int key) {
        entries -= present[key] ? 1 : 0;
        present[key] = false;
    }

    /// Copies a key of an evicted segment to a log.
    final void move(int key, Log log) {
        moved += sizes[key];
        log.append(key);
    }

    /// {@return the bytes that were moved for each inserted one}
    final double amplification() {
        return inserted == 0 ? 0 : (double) moved / inserted;
    }
}
