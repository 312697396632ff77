package io.hugewise.cache.policy;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.PriorityQueue;
import org.jspecify.annotations.Nullable;

/// The miss ratio that an LRU cache of any size would have, estimated from requests for a sample of the keys in bounded
/// memory (SHARDS with a fixed sample size, Waldspurger et al., FAST '15).
///
/// Keys whose hash is below a threshold are sampled; it is lowered when there are too many. The distance of a request is
/// the bytes of sampled keys that were requested since the key's last request, divided by the share of keys that are
/// sampled: a cache of more bytes would hit. Requests of sampled keys that are too few or too many, because a popular
/// key is sampled or not, are set off against the number of all requests at distance 0.
public final class MissRatioCurve {
    private static final int HASH_BITS = 24;
    private static final int MOST_SAMPLES = 1 << 13;
    private static final int BUCKETS = 512;
    /// Requests per sample after which all counts are halved.
    private static final int PERIOD = 64;
    private static final int LEAST_REQUESTS = 1000;

    private final Map<Long, Sample> samples = new HashMap<>();
    private final PriorityQueue<Sample> byRank = new PriorityQueue<>((one, other) -> Integer.compare(other.rank, one.rank));
    /// Bytes of the sample at each place, in the order of their last requests: a Fenwick tree.
    private final long[] tree = new long[2 * MOST_SAMPLES + 1];
    private final @Nullable Sample[] places = new @Nullable Sample[2 * MOST_SAMPLES];
    private final double[] distances = new double[BUCKETS];
    private final double bucketBytes;
    private int nextPlace;
    private double expected;
    private double sampled;
    private volatile int threshold = 1 << HASH_BITS;

    private static final class Sample {
        final long hash;
        final int rank;
        int place;
        long bytes;

        Sample(long hash, int rank) {
            this.hash = hash;
            this.rank = rank;
        }
    }

    /// Creates one for sizes up to a limit.
    ///
    /// @param maximumBytes the limit
    public MissRatioCurve(long maximumBytes) {
        bucketBytes = (double) maximumBytes / BUCKETS;
    }

    /// Whether a key is sampled. Others need not be reported.
    ///
    /// @param hash hash of the key
    /// @return whether it is
    public boolean isSampled(long hash) {
        return rank(hash) < threshold;
    }

    private static int rank(long hash) {
        return (int) ((hash * 0x9E3779B97F4A7C15L) >>> (Long.SIZE - HASH_BITS));
    }

    private double rate() {
        return (double) threshold / (1 << HASH_BITS);
    }

    /// Counts requests of all keys, sampled or not.
    ///
    /// @param requests their number since the last call
    public synchronized void requested(long requests) {
        expected += requests * rate();
    }

    /// Notes a request of a sampled key.
    ///
    /// @param hash hash of the key
    public synchronized void read(long hash) {
        Sample sample = samples.get(hash);
        sampled++;
        if (sample == null) {
            return;
        }
        double distance = (bytesSince(sample) + sample.bytes) / rate();
        // A cache hits if it is at least as large as the distance.
        long bucket = (long) Math.ceil(distance / bucketBytes);
        if (bucket < BUCKETS) {
            distances[(int) bucket]++;
        }
        move(sample);
    }

    /// Notes that a sampled key was added or replaced.
    ///
    /// @param hash hash of the key
    /// @param bytes size of its entry
    public synchronized void written(long hash, long bytes) {
        Sample sample = samples.get(hash);
        if (sample == null) {
            if (!isSampled(hash)) {
                return;
            }
            sample = new Sample(hash, rank(hash));
            sample.place = -1;
            samples.put(hash, sample);
            byRank.add(sample);
        } else {
            add(sample.place, -sample.bytes);
            places[sample.place] = null;
        }
        sample.bytes = bytes;
        append(sample);
        if (samples.size() > MOST_SAMPLES) {
            lowerThreshold();
        }
    }

    /// Notes that a key was removed: its next request misses in a cache of any size.
    ///
    /// @param hash hash of the key
    public synchronized void removed(long hash) {
        Sample sample = samples.get(hash);
        if (sample != null) {
            forget(sample);
            byRank.remove(sample);
        }
    }

    private void forget(Sample sample) {
        samples.remove(sample.hash);
        add(sample.place, -sample.bytes);
        places[sample.place] = null;
    }

    private void lowerThreshold() {
        Sample largest = byRank.poll();
        if (largest == null) {
            return;
        }
        double before = rate();
        threshold = largest.rank;
        forget(largest);
        for (Sample next = byRank.peek(); next != null && next.rank >= threshold; next = byRank.peek()) {
            byRank.remove();
            forget(next);
        }
        scale(rate() / before);
    }

    private void scale(double factor) {
        for (int i = 0; i < BUCKETS; i++) {
            distances[i] *= factor;
        }
        expected *= factor;
        sampled *= factor;
    }

    private void move(Sample sample) {
        add(sample.place, -sample.bytes);
        places[sample.place] = null;
        append(sample);
        if (sampled > (double) PERIOD * MOST_SAMPLES) {
            scale(0.5);
        }
    }

    private void append(Sample sample) {
        if (nextPlace == places.length) {
            compact();
        }
        sample.place = nextPlace++;
        places[sample.place] = sample;
        add(sample.place, sample.bytes);
    }

    /// Moves the samples to the first places, in the same order.
    private void compact() {
        Arrays.fill(tree, 0);
        int to = 0;
        for (int from = 0; from < places.length; from++) {
            Sample sample = places[from];
            if (sample != null) {
                places[from] = null;
                places[to] = sample;
                sample.place = to;
                add(to, sample.bytes);
                to++;
            }
        }
        nextPlace = to;
    }

    private void add(int place, long bytes) {
        for (int i = place + 1; i < tree.length; i += i & -i) {
            tree[i] += bytes;
        }
    }

    private long until(int place) {
        long sum = 0;
        for (int i = place + 1; i > 0; i -= i & -i) {
            sum += tree[i];
        }
        return sum;
    }

    private long bytesSince(Sample sample) {
        return until(nextPlace - 1) - until(sample.place);
    }

    /// Estimates the miss ratio of a cache.
    ///
    /// @param bytes its size
    /// @return the share of requests that would miss, from 0 to 1; empty if there were fewer than 1000 requests of
    ///     sampled keys
    public synchronized OptionalDouble missRatio(long bytes) {
        if (sampled < LEAST_REQUESTS) {
            return OptionalDouble.empty();
        }
        double hits = expected - sampled;
        for (int i = 0; i < BUCKETS && i * bucketBytes <= bytes; i++) {
            hits += distances[i];
        }
        return OptionalDouble.of(Math.clamp(1 - hits / expected, 0, 1));
    }
}
