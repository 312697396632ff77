package io.hugewise.cache;

/// Segments without entries that are in the index, which readers may still use.
final class Retired {
    private final Segments segments;
    private final Pins pins;
    private final IntQueue queue = new IntQueue();

    Retired(Segments segments, Pins pins) {
        this.segments = segments;
        this.pins = pins;
    }

    synchronized int count() {
        return queue.size();
    }

    /// Makes a segment free later, when no reader uses it.
    synchronized void add(int segment) {
        queue.add(segment);
    }

    private synchronized int take() {
        return queue.take();
    }

    /// Makes the segments free when no reader uses them. One thread at a time may call it.
    ///
    /// @return whether there were some, and they are free now
    boolean release() {
        int count = count();
        if (count == 0 || !pins.await(Pins.patience())) {
            return false;
        }
        for (int i = 0; i < count; i++) {
            segments.release(take());
        }
        return true;
    }

    /// Makes the segments free when no thread reads any more.
    synchronized void releaseAll() {
        while (!queue.isEmpty()) {
            segments.release(queue.take());
        }
    }
}
