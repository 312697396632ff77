package io.hugewise.jcache;

import java.util.concurrent.atomic.LongAdder;
import java.util.function.LongSupplier;
import javax.cache.management.CacheStatisticsMXBean;

/// Counts of a cache, and times in microseconds.
final class Statistics implements CacheStatisticsMXBean {
    private static final float NANOS_PER_MICRO = 1000;

    volatile boolean isEnabled;
    private final LongSupplier evictions;
    private final LongAdder hits = new LongAdder();
    private final LongAdder misses = new LongAdder();
    private final LongAdder puts = new LongAdder();
    private final LongAdder removals = new LongAdder();
    private final LongAdder getNanos = new LongAdder();
    private final LongAdder putNanos = new LongAdder();
    private final LongAdder removeNanos = new LongAdder();
    private volatile long evictionsBefore;

    Statistics(LongSupplier evictions) {
        this.evictions = evictions;
    }

    void read(boolean isHit) {
        count(isHit ? hits : misses);
    }

    void written() {
        count(puts);
    }

    void removed() {
        count(removals);
    }

    private void count(LongAdder counter) {
        if (isEnabled) {
            counter.increment();
        }
    }

    long start() {
        return isEnabled ? System.nanoTime() : 0;
    }

    void readSince(long start) {
        time(getNanos, start);
    }

    void writtenSince(long start) {
        time(putNanos, start);
    }

    void removedSince(long start) {
        time(removeNanos, start);
    }

    private void time(LongAdder nanos, long start) {
        if (isEnabled && start != 0) {
            nanos.add(System.nanoTime() - start);
        }
    }

    @Override
    public void clear() {
        for (LongAdder counter : new LongAdder[] {hits, misses, puts, removals, getNanos, putNanos, removeNanos}) {
            counter.reset();
        }
        evictionsBefore = evictions.getAsLong();
    }

    @Override
    public long getCacheHits() {
        return hits.sum();
    }

    @Override
    public float getCacheHitPercentage() {
        return percentage(hits.sum());
    }

    @Override
    public long getCacheMisses() {
        return misses.sum();
    }

    @Override
    public float getCacheMissPercentage() {
        return percentage(misses.sum());
    }

    private float percentage(long count) {
        long gets = getCacheGets();
        return gets == 0 ? 0 : 100f * count / gets;
    }

    @Override
    public long getCacheGets() {
        return hits.sum() + misses.sum();
    }

    @Override
    public long getCachePuts() {
        return puts.sum();
    }

    @Override
    public long getCacheRemovals() {
        return removals.sum();
    }

    @Override
    public long getCacheEvictions() {
        return evictions.getAsLong() - evictionsBefore;
    }

    @Override
    public float getAverageGetTime() {
        return mean(getNanos, getCacheGets());
    }

    @Override
    public float getAveragePutTime() {
        return mean(putNanos, getCachePuts());
    }

    @Override
    public float getAverageRemoveTime() {
        return mean(removeNanos, getCacheRemovals());
    }

    private static float mean(LongAdder nanos, long count) {
        return count == 0 ? 0 : nanos.sum() / NANOS_PER_MICRO / count;
    }
}
