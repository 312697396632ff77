import com.sun.management.OperatingSystemMXBean;
import io.hugewise.cache.HugeCache;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.SplittableRandom;

/// `fill FILE BYTES`: fills a cache in a file, and closes it. `write FILE BYTES`: fills it, and goes on until it is killed.
/// `attach FILE BYTES READS SEED`: opens it, and reads at random.
final class Restart {
    public static void main(String[] arguments) {
        Path file = Path.of(arguments[1]);
        long bytes = Long.parseLong(arguments[2]);
        var process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        double first = arguments[0].equals("attach") ? loadClasses(file.resolveSibling("small")) : 0;
        long cpu = process.getProcessCpuTime();
        long begin = System.nanoTime();
        var cache = Load.builder(bytes).file(file).build();
        double attached = (System.nanoTime() - begin) / 1e9;
        double attachedCpu = (process.getProcessCpuTime() - cpu) / 1e9;
        long keys = bytes / 600 * 5 / 4;
        switch (arguments[0]) {
            case "fill" -> {
                fill(cache, keys);
                long entries = cache.estimatedSize();
                cpu = process.getProcessCpuTime();
                cache.close();
                Load.print(Map.of("entries", entries, "close_cpu_seconds", (process.getProcessCpuTime() - cpu) / 1e9));
            }
            case "write" -> {
                fill(cache, keys);
                Load.print(Map.of("entries", cache.estimatedSize()));
                for (int thread = 0; thread < 2; thread++) {
                    Thread.ofPlatform().start(() -> write(cache, keys));
                }
            }
            default -> attach(cache, keys, Map.of("seconds", attached, "cpu_seconds", attachedCpu, "first_seconds", first), Long.parseLong(arguments[3]), Long.parseLong(arguments[4]));
        }
    }

    /// Opens a small cache in a file: classes and the library of the system calls are loaded and linked then.
    ///
    /// @return how long it took
    private static double loadClasses(Path file) {
        long begin = System.nanoTime();
        Load.builder(4 << 20).file(file).build().close();
        double seconds = (System.nanoTime() - begin) / 1e9;
        Load.builder(4 << 20).file(file).build().close();
        return seconds;
    }

    private static void fill(HugeCache<Long, Load.Value> cache, long keys) {
        for (long key = 0; key < keys; key++) {
            cache.put(key, Load.value(key, 0));
        }
        // Else its thread may still evict.
        cache.cleanUp();
    }

    private static void write(HugeCache<Long, Load.Value> cache, long keys) {
        var random = new SplittableRandom();
        for (long version = 1; ; version++) {
            long key = random.nextLong(keys);
            if (version % 8 == 0) {
                cache.invalidate(key);
            } else {
                cache.put(key, Load.value(key, version));
            }
        }
    }

    private static void attach(HugeCache<Long, Load.Value> cache, long keys, Map<String, Object> times, long reads, long seed) {
        var random = new SplittableRandom(seed);
        long found = 0;
        long wrong = 0;
        long entries = cache.estimatedSize();
        for (long i = 0; i < reads; i++) {
            long key = random.nextLong(keys);
            Load.Value value = cache.getIfPresent(key);
            found += value == null ? 0 : 1;
            wrong += value == null || value.isOf(key) && value.size() == Load.size(key) ? 0 : 1;
        }
        Map<String, Object> figures = new HashMap<>(times);
        figures.putAll(Map.of("kind", cache.restart().kind(), "entries", entries, "reads", reads, "found", found,
                "wrong", wrong, "coverage", cache.coverage()));
        Load.print(figures);
        cache.close();
    }
}
