import io.hugewise.cache.HugeCache;
import java.time.Duration;
import java.util.Map;
import java.util.SplittableRandom;

/// `at-once ENTRIES BYTES`: entries of 16 + 48 bytes expire at the same time. `reads READS BYTES`: reads entries while they
/// expire, and counts those that are read after their time.
final class Expiry {
    public static void main(String[] arguments) throws InterruptedException {
        long count = Long.parseLong(arguments[1]);
        long bytes = Long.parseLong(arguments[2]);
        try (var cache = Load.builder(bytes).variableExpiry().build()) {
            if (arguments[0].equals("at-once")) {
                atOnce(cache, count);
            } else {
                reads(cache, count);
            }
        }
    }

    private static void atOnce(HugeCache<Long, Load.Value> cache, long entries) throws InterruptedException {
        // Long enough to add all, on a busy machine.
        long end = System.nanoTime() + Duration.ofSeconds(20 + entries / 300_000).toNanos();
        for (long key = 0; key < entries; key++) {
            cache.put(key, new Load.Value(key, 0, 48), Duration.ofNanos(end - System.nanoTime()));
        }
        long added = cache.estimatedSize();
        long used = cache.usedBytes();
        while (System.nanoTime() < end) {
            Thread.sleep(1);
        }
        while (cache.usedBytes() > cache.indexBytes() + (16L << 20) || cache.estimatedSize() > 0) {
            Thread.sleep(1);
        }
        Load.print(Map.of("entries", added, "used_before", used, "used_after", cache.usedBytes(), "index", cache.indexBytes(),
                "seconds", (System.nanoTime() - end) / 1e9));
    }

    /// The version of a value is the time at which it expires.
    private static void reads(HugeCache<Long, Load.Value> cache, long reads) {
        var random = new SplittableRandom(3);
        long expired = 0;
        long found = 0;
        for (long i = 0; i < reads; i++) {
            long key = random.nextLong(200_000);
            long now = System.nanoTime();
            Load.Value value = cache.getIfPresent(key);
            if (value == null) {
                long duration = 40_000_000 + random.nextLong(2_000_000_000L);
                cache.put(key, new Load.Value(key, System.nanoTime() + duration, 48), Duration.ofNanos(duration));
            } else {
                found++;
                expired += now - value.version() > 0 || !value.isOf(key) ? 1 : 0;
            }
        }
        Load.print(Map.of("reads", reads, "found", found, "expired", expired));
    }
}
