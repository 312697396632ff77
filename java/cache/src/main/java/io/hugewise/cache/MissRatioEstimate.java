package io.hugewise.cache;

import io.hugewise.cache.policy.MissRatioCurve;
import java.util.OptionalDouble;

/// The estimated miss ratios of a cache with other limits.
final class MissRatioEstimate {
    /// Bytes of an entry in the index and in the sketch of frequencies.
    private static final int INDEX_BYTES = 18;

    private final Store store;
    private final MissRatioCurve curve;
    private long requests;

    MissRatioEstimate(Store store) {
        this.store = store;
        this.curve = new MissRatioCurve(2L * store.segments.pool.count() * store.segments.size);
    }

    void read(KeyBytes key) {
        if (curve.isSampled(key.hash)) {
            count();
            curve.read(key.hash);
        }
    }

    void written(long hash, int keySize, int valueSize) {
        if (curve.isSampled(hash)) {
            curve.written(hash, store.entries.size(keySize, valueSize) + INDEX_BYTES);
        }
    }

    void removed(KeyBytes key) {
        if (curve.isSampled(key.hash)) {
            curve.removed(key.hash);
        }
    }

    /// Counts the requests of all keys since the last call.
    private synchronized void count() {
        long now = store.hits.sum() + store.misses.sum();
        curve.requested(now - requests);
        requests = now;
    }

    OptionalDouble missRatio(long bytes) {
        count();
        return curve.missRatio(bytes);
    }
}
