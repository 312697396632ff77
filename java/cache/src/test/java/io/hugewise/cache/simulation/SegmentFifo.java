package io.hugewise.cache.simulation;

/// Evicts the oldest segment, and appends those of its keys again that were used: CLOCK on segments.
final class SegmentFifo extends Segments {
    private final Log log = new Log();

    SegmentFifo(long capacity, int[] sizes) {
        super(capacity, sizes);
    }

    @Override
    void insert(int key) {
        log.append(key);
    }

    @Override
    long bytes() {
        return log.bytes;
    }

    @Override
    void evict() {
        Segment oldest = log.take();
        for (int i = 0; i < oldest.count; i++) {
            int key = oldest.keys[i];
            remove(key);
            if (uses[key] > 0 && sizes[key] <= movable()) {
                uses[key] = 0;
                move(key, log);
            }
        }
    }
}
