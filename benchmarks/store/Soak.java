import io.hugewise.cache.HugeCache;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.LongAdder;

/// `OPERATIONS THREADS BYTES CLOSES SEED`: threads read, put, remove and load at random in a cache that is too small,
/// which is closed at random moments and replaced by another one.
final class Soak {
    private static volatile HugeCache<Long, Load.Value> cache;
    private static final LongAdder done = new LongAdder();
    private static final LongAdder wrong = new LongAdder();
    private static final LongAdder found = new LongAdder();
    private static final LongAdder refused = new LongAdder();

    public static void main(String[] arguments) throws InterruptedException {
        long operations = Long.parseLong(arguments[0]);
        int threads = Integer.parseInt(arguments[1]);
        long bytes = Long.parseLong(arguments[2]);
        long closes = Long.parseLong(arguments[3]);
        var random = new SplittableRandom(Long.parseLong(arguments[4]));
        cache = create(bytes);
        List<Thread> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            SplittableRandom own = random.split();
            running.add(Thread.ofPlatform().start(() -> operate(operations / threads, bytes / 50, own)));
        }
        long evictions = 0;
        for (long close = 0; close < closes; close++) {
            long next = done.sum() + random.nextLong(2 * operations / (closes + 1));
            while (done.sum() < next && running.stream().anyMatch(Thread::isAlive)) {
                Thread.sleep(1);
            }
            HugeCache<Long, Load.Value> old = cache;
            cache = create(bytes);
            evictions += old.stats().evictions();
            old.close();
        }
        for (Thread thread : running) {
            thread.join();
        }
        Load.print(Map.of("operations", done.sum(), "closes", closes, "wrong", wrong.sum(), "found", found.sum(), "refused", refused.sum(),
                "evictions", evictions + cache.stats().evictions()));
    }

    private static HugeCache<Long, Load.Value> create(long bytes) {
        return Load.builder(bytes).heapEntries(2000).variableExpiry().build();
    }

    private static void operate(long operations, long keys, SplittableRandom random) {
        long count = 0;
        for (long i = 0; i < operations; i++) {
            // Some keys are used much more often.
            long key = (long) (keys * Math.pow(random.nextDouble(), 4));
            try {
                switch (random.nextInt(16)) {
                    case 0, 1 -> cache.put(key, value(key, random));
                    case 2 -> cache.invalidate(key);
                    case 3, 4 -> check(key, cache.get(key, wanted -> value(wanted, random)));
                    case 5 -> cache.read(key, bytes -> check(key, Load.VALUES.read(bytes)));
                    default -> check(key, cache.getIfPresent(key));
                }
            } catch (IllegalStateException closed) {
                refused.increment();
            }
            if (++count == 1000) {
                done.add(count);
                count = 0;
            }
        }
        done.add(count);
    }

    private static Load.Value value(long key, SplittableRandom random) {
        int size = random.nextInt(2000) == 0 ? 100_000 + random.nextInt(200_000) : 24 + random.nextInt(300);
        return new Load.Value(key, random.nextLong(), size);
    }

    private static boolean check(long key, Load.Value value) {
        if (value != null) {
            found.increment();
            if (!value.isOf(key)) {
                wrong.increment();
            }
        }
        return true;
    }
}
