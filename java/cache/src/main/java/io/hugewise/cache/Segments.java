package io.hugewise.cache;

import io.hugewise.cache.Manifest.Use;
import io.hugewise.memory.SegmentPool;

/// The memory of a cache in equal segments, of which a limited number may be in use. The last free ones are kept for
/// evicting, which needs memory to free memory, and for the index, without which an entry would be rejected.
final class Segments {
    /// Free segments that only evicting and overflow buckets may take.
    static final int RESERVED = 2;
    /// Of these, those that only overflow buckets may take.
    static final int RESERVED_FOR_OVERFLOW = 1;
    /// Field: where an entry is appended next, the number of its writers, and whether it is closed. Or the used chunks.
    static final int STATE = 0;
    /// Field: bytes of entries that are in the index.
    static final int LIVE = 1;
    /// Field: the last time at which one of the entries expires.
    static final int LAST_EXPIRY = 2;
    /// Field: chunks of all entries that were appended.
    static final int PARTS = 3;
    /// Number of fields.
    static final int FIELDS = 4;

    final SegmentPool pool;
    final Manifest manifest;
    final long base;
    final int size;
    final Starts starts;
    private volatile int limit;

    /// Takes the segments that the manifest has in use.
    ///
    /// @param pool of which no segment is taken
    Segments(SegmentPool pool, Manifest manifest) {
        this.pool = pool;
        this.manifest = manifest;
        this.base = pool.memory().address();
        this.size = Math.toIntExact(pool.segmentSize());
        this.starts = new Starts(pool.count(), size);
        this.limit = pool.count();
        if (manifest.use(0) != Use.FREE) {
            takeUsed();
        }
    }

    private void takeUsed() {
        for (int segment = 0; segment < pool.count(); segment++) {
            pool.acquire();
        }
        for (int segment = 0; segment < pool.count(); segment++) {
            if (manifest.use(segment) == Use.FREE) {
                pool.release(segment);
            }
            for (int field = 0; field < FIELDS; field++) {
                pool.setField(segment, field, manifest.field(segment, field));
            }
        }
    }

    int limit() {
        return limit;
    }

    void setLimit(int segments) {
        limit = segments;
    }

    int used() {
        return pool.count() - pool.free();
    }

    /// Segments that may be taken; negative if the limit was lowered and more are in use.
    int free() {
        return limit - used();
    }

    /// Takes a segment unless fewer than `spared` would remain free, or none is.
    ///
    /// @return its number, or -1
    synchronized int tryTake(int spared) {
        return free() > spared ? pool.tryAcquire() : -1;
    }

    void release(int segment) {
        manifest.setUse(segment, Use.FREE, 0);
        pool.release(segment);
    }

    /// Numbers of the segments of a use, in their order.
    int[] withUse(Use use) {
        return manifest.withUse(use);
    }

    /// Writes the fields of all segments to the manifest.
    void save() {
        for (int segment = 0; segment < pool.count(); segment++) {
            for (int field = 0; field < FIELDS; field++) {
                manifest.setField(segment, field, pool.field(segment, field));
            }
        }
    }

    long address(int segment) {
        return base + (long) segment * size;
    }

    int of(long address) {
        return (int) ((address - base) / size);
    }

    void addLive(long address, long bytes) {
        pool.addToField(of(address), LIVE, bytes);
    }
}
