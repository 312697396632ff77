package io.hugewise.cache;

/// Segments and chunks without entries that are in the index, which readers may still use.
final class Retired {
    private final Segments segments;
    private final Chunks chunks;
    private final Pins pins;
    /// Numbers of segments, and of chunks with all bits inverted.
    private final IntQueue queue = new IntQueue();

    Retired(Segments segments, Chunks chunks, Pins pins) {
        this.segments = segments;
        this.chunks = chunks;
        this.pins = pins;
    }

    synchronized int count() {
        return queue.size();
    }

    /// Makes a segment free later, when no reader uses it.
    synchronized void add(int segment) {
        queue.add(segment);
    }

    /// Makes a chunk free later, as [#add] does.
    synchronized void addChunk(int chunk) {
        queue.add(~chunk);
    }

    private synchronized int take() {
        return queue.take();
    }

    /// Makes them free when no reader uses them. One thread at a time may call it.
    ///
    /// @return whether there were some, and they are free now
    boolean release() {
        int count = count();
        if (count == 0 || !pins.await(Pins.patience())) {
            return false;
        }
        for (int i = 0; i < count; i++) {
            release(take());
        }
        return true;
    }

    /// Makes them free when no thread reads any more.
    synchronized void releaseAll() {
        while (!queue.isEmpty()) {
            release(queue.take());
        }
    }

    private void release(int number) {
        if (number < 0) {
            chunks.give(~number);
        } else {
            segments.release(number);
        }
    }
}
