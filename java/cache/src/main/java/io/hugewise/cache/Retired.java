package io.hugewise.cache;

import java.util.Arrays;

/// Segments and chunks without entries that are in the index, which readers may still use.
///
/// They are in linked lists, which take no memory of the heap: to retire one, after its entries have left the index, cannot
/// fail.
final class Retired {
    private static final int NONE = -1;

    private final Segments segments;
    private final Chunks chunks;
    private final Pins pins;
    /// The next segment of a list, by segment.
    private final int[] next;
    private final List added = new List();
    /// Those that a release waits for.
    private final List waiting = new List();

    /// A list of segments, and one of chunks.
    private static final class List {
        int segment = NONE;
        int chunk = NONE;
        int count;
    }

    Retired(Segments segments, Chunks chunks, Pins pins) {
        this.segments = segments;
        this.chunks = chunks;
        this.pins = pins;
        this.next = new int[segments.pool.count()];
        Arrays.fill(next, NONE);
    }

    synchronized int count() {
        return added.count + waiting.count;
    }

    /// Makes a segment free later, when no reader uses it.
    synchronized void add(int segment) {
        next[segment] = added.segment;
        added.segment = segment;
        added.count++;
    }

    /// Makes a chunk free later, as [#add] does.
    synchronized void addChunk(int chunk) {
        chunks.setNext(chunk, added.chunk);
        added.chunk = chunk;
        added.count++;
    }

    /// Makes them free when no reader uses them. One thread at a time may call it.
    ///
    /// @return whether there were some, and they are free now
    boolean release() {
        if (!moveAdded() || !pins.await(Pins.patience())) {
            return false;
        }
        releaseWaiting();
        return true;
    }

    /// Whether there are some to wait for: those of an earlier call, or else all.
    private synchronized boolean moveAdded() {
        if (waiting.count == 0) {
            waiting.segment = added.segment;
            waiting.chunk = added.chunk;
            waiting.count = added.count;
            added.segment = NONE;
            added.chunk = NONE;
            added.count = 0;
        }
        return waiting.count > 0;
    }

    /// Makes them free when no thread reads any more.
    void releaseAll() {
        while (moveAdded()) {
            releaseWaiting();
        }
    }

    private void releaseWaiting() {
        for (int segment = takeSegment(); segment != NONE; segment = takeSegment()) {
            segments.release(segment);
        }
        for (int chunk = takeChunk(); chunk != NONE; chunk = takeChunk()) {
            chunks.give(chunk);
        }
    }

    private synchronized int takeSegment() {
        int segment = waiting.segment;
        if (segment != NONE) {
            waiting.segment = next[segment];
            waiting.count--;
        }
        return segment;
    }

    private synchronized int takeChunk() {
        int chunk = waiting.chunk;
        if (chunk != NONE) {
            waiting.chunk = chunks.next(chunk);
            waiting.count--;
        }
        return chunk;
    }
}
