import io.hugewise.cache.DriftingSizes;
import io.hugewise.cache.HugeCache;
import io.hugewise.memory.HugeOptions;
import java.util.Arrays;
import java.util.Map;
import java.util.SplittableRandom;

/// `puts BYTES SECONDS`: puts entries with values of 128 to 4096 bytes until the cache is full and then on.
/// `drift BYTES STEPS`: puts values whose sizes drift from 16 bytes to 1 MiB and back.
final class Limit {
    private static final int BATCH = 10_000;

    public static void main(String[] arguments) {
        long bytes = Long.parseLong(arguments[1]);
        if (arguments[0].equals("puts")) {
            puts(bytes, Double.parseDouble(arguments[2]));
        } else {
            drift(bytes, Integer.parseInt(arguments[2]));
        }
    }

    private static void puts(long bytes, double seconds) {
        // Compiles.
        try (var cache = Load.builder(64 << 20).build()) {
            new Puts(cache).run(cache, 600_000);
        }
        // Otherwise the puts before are the first that touch their memory.
        try (var cache = Load.builder(bytes).memory(HugeOptions::pretouch).build()) {
            var before = new Puts(cache);
            while (cache.usedBytes() < 0.9 * cache.maximumBytes()) {
                before.run(cache, BATCH);
            }
            while (cache.stats().evictions() == 0) {
                new Puts(cache).run(cache, BATCH);
            }
            var full = new Puts(cache);
            // As many bytes again first: then old entries compete with new ones.
            full.run(cache, before.count);
            var at = new Puts(cache);
            for (long begin = System.nanoTime(); System.nanoTime() - begin < seconds * 1e9; ) {
                at.run(cache, BATCH);
            }
            Load.print(Map.of("before_per_second", before.rate(), "at_limit_per_second", at.rate(), "ratio", at.rate() / before.rate(),
                    "p999_us", at.percentile(0.999), "p9999_us", at.percentile(0.9999), "p50_us", at.percentile(0.5), "largest_us", at.percentile(1),
                    "before_p9999_us", before.percentile(0.9999), "rejections", cache.stats().rejections(), "puts", at.count));
        }
    }

    /// Puts with their latencies.
    private static final class Puts {
        private static long next;

        private final SplittableRandom random = new SplittableRandom(1);
        private final long[] buckets = new long[64 * 32];
        private long nanos;
        private long count;
        private long largest;

        Puts(HugeCache<Long, Load.Value> cache) {}

        void run(HugeCache<Long, Load.Value> cache, long puts) {
            long begin = System.nanoTime();
            for (long i = 0; i < puts; i++) {
                int size = 128 + random.nextInt(3969);
                long key = next++;
                long start = System.nanoTime();
                cache.put(key, new Load.Value(key, 0, size));
                long taken = System.nanoTime() - start;
                largest = Math.max(largest, taken);
                buckets[bucket(taken)]++;
            }
            nanos += System.nanoTime() - begin;
            count += puts;
        }

        private static int bucket(long value) {
            int shift = Math.max(0, 59 - Long.numberOfLeadingZeros(value | 1));
            return (shift << 5) + (int) (value >>> shift);
        }

        double rate() {
            return count / (nanos / 1e9);
        }

        /// In microseconds, at most 3 % too large.
        double percentile(double share) {
            long wanted = (long) Math.ceil(share * Arrays.stream(buckets).sum());
            for (int i = 0, shift = 0; i < buckets.length; i++) {
                shift = i >> 5;
                wanted -= buckets[i];
                if (wanted <= 0) {
                    int low = i - (shift << 5);
                    return Math.min(largest, ((long) low + 1 << shift)) / 1e3;
                }
            }
            return largest / 1e3;
        }
    }

    private static void drift(long bytes, int steps) {
        try (var cache = Load.builder(bytes).build()) {
            var sizes = new DriftingSizes<>(cache, new DriftingSizes.Values<>(16, 24, 1 << 20, key -> size -> new Load.Value(key, 0, size), Load.Value::size));
            double least = 1;
            double leastPayload = 1;
            for (int step = 0; step < steps; step++) {
                // Four times there and back, from the smallest on.
                double point = 1 - Math.abs((step * 8.0 / steps) % 2 - 1);
                sizes.step(point, bytes / 4);
                var use = sizes.use();
                if (step >= 8) {
                    least = Math.min(least, use.live());
                    leastPayload = sizes.median(point) < 512 ? leastPayload : Math.min(leastPayload, use.payload());
                }
                System.err.printf("step %d: %,d values of about %.0f bytes, live %.3f of the limit, keys and values %.3f, index %.3f%n", step, use.entries(),
                        sizes.median(point), use.live(), use.payload(), (double) cache.indexBytes() / cache.maximumBytes());
            }
            Load.print(Map.of("steps", steps, "bytes_above_limit", sizes.above(), "least_live_ratio", least, "least_payload_ratio", leastPayload,
                    "puts", sizes.puts(), "rejections", cache.stats().rejections()));
        }
    }
}
