package io.hugewise.cache;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;

/// A store that fails from time to time, after it has written a part of a batch.
final class FlakyStore implements CacheWriter<Long, byte[]> {
    final ConcurrentMap<Long, byte[]> rows = new ConcurrentHashMap<>();
    final AtomicLong batches = new AtomicLong();
    final AtomicLong failures = new AtomicLong();
    private final double failureRatio;
    private final long delayMillis;

    FlakyStore(double failureRatio, long delayMillis) {
        this.failureRatio = failureRatio;
        this.delayMillis = delayMillis;
    }

    @Override
    public void writeAll(List<Change<Long, byte[]>> changes) throws IOException {
        var random = ThreadLocalRandom.current();
        batches.incrementAndGet();
        try {
            Thread.sleep(delayMillis);
        } catch (InterruptedException error) {
            throw new IOException(error);
        }
        int written = random.nextDouble() < failureRatio ? random.nextInt(changes.size()) : changes.size();
        for (Change<Long, byte[]> change : changes.subList(0, written)) {
            if (change.isRemoval()) {
                rows.remove(change.key());
            } else {
                rows.put(change.key(), change.value());
            }
        }
        if (written < changes.size()) {
            failures.incrementAndGet();
            throw new IOException("written " + written + " of " + changes.size());
        }
    }
}
