package io.hugewise.cache.simulation;

import java.util.Arrays;
import java.util.Random;
import java.util.function.IntFunction;
import java.util.function.ToLongFunction;

/// Generated traces. All depend on a fixed seed only.
final class Generated {
    private static final int KEYS = 100_000;
    private static final int REQUESTS = 2_000_000;
    private static final double EXPONENT = 0.99;
    private static final int SEED = 7;

    private Generated() {}

    /// Popular keys, and every 200,000 requests a scan of 50,000 keys that are not requested otherwise.
    static Trace zipfWithScans() {
        var zipf = new Zipf(KEYS, EXPONENT);
        return trace("zipf with scans", i -> {
            int since = i % 200_000;
            return since < 50_000 ? KEYS + i : zipf.next();
        }, _ -> 1);
    }

    /// Popular keys of which others become popular: the whole set moves by its size within the trace.
    static Trace driftingZipf() {
        var zipf = new Zipf(KEYS, EXPONENT);
        return trace("drifting zipf", i -> zipf.next() + (long) i * KEYS / REQUESTS, _ -> 1);
    }

    /// Popular keys whose sizes are log-normal with a median of 300 bytes, as in key-value stores.
    static Trace keyValue() {
        return sized("zipf, log-normal sizes", random -> Math.round(300 * Math.exp(1.2 * random.nextGaussian())));
    }

    /// Popular keys whose sizes have a Pareto distribution from 2 KiB, as of files.
    static Trace files() {
        return sized("zipf, Pareto sizes", random -> Math.round(2048 / Math.pow(1 - random.nextDouble(), 1 / 1.1)));
    }

    private static Trace sized(String name, ToLongFunction<Random> distribution) {
        var zipf = new Zipf(KEYS, 0.9);
        var random = new Random(SEED);
        long[] sizes = new long[KEYS];
        Arrays.setAll(sizes, _ -> Math.clamp(distribution.applyAsLong(random), 1, 64 << 20));
        return trace(name, _ -> zipf.next(), key -> sizes[(int) (long) key]);
    }

    private static Trace trace(String name, IntFunction<Long> key, ToLongFunction<Long> size) {
        long[] keys = new long[REQUESTS];
        long[] sizes = new long[REQUESTS];
        for (int i = 0; i < REQUESTS; i++) {
            keys[i] = key.apply(i);
            sizes[i] = size.applyAsLong(keys[i]);
        }
        return Trace.of(name, keys, sizes);
    }

    /// Ranks from 0, each with a probability in proportion to a negative power of its number.
    private static final class Zipf {
        private final double[] cumulated;
        private final Random random = new Random(SEED);

        Zipf(int count, double exponent) {
            cumulated = new double[count];
            double sum = 0;
            for (int i = 0; i < count; i++) {
                sum += Math.pow(i + 1, -exponent);
                cumulated[i] = sum;
            }
        }

        long next() {
            int found = Arrays.binarySearch(cumulated, random.nextDouble() * cumulated[cumulated.length - 1]);
            return found < 0 ? -found - 1 : found;
        }
    }
}
