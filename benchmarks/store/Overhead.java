import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.regex.Pattern;
import javax.management.ObjectName;

/// `ENTRIES VALUE BYTES`: adds entries that never leave, with values of VALUE bytes, or of 128 to 1024 if it is 0. The
/// cache has expiry.
final class Overhead {
    public static void main(String[] arguments) throws Exception {
        long entries = Long.parseLong(arguments[0]);
        int size = Integer.parseInt(arguments[1]);
        var builder = Load.builder(Long.parseLong(arguments[2]));
        var cache = (size == 0 ? builder.variableExpiry() : builder).build();
        long objects = objects();
        long heap = heap();
        long collections = collectionMillis();
        long payload = 0;
        long begin = System.nanoTime();
        for (long key = 0; key < entries; key++) {
            int bytes = size == 0 ? Load.size(key) : size;
            cache.put(key, new Load.Value(key, 0, bytes));
            payload += 16 + bytes;
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        collections = collectionMillis() - collections;
        cache.cleanUp();
        Load.print(Map.of("entries", cache.estimatedSize(), "overhead", (double) (cache.usedBytes() - payload) / entries,
                "index", (double) cache.indexBytes() / entries, "evictions", cache.stats().evictions(), "objects", objects() - objects,
                "heap", heap() - heap, "collections_ms", collections, "seconds", seconds, "coverage", cache.coverage()));
        cache.close();
    }

    /// Live objects on the heap.
    private static long objects() throws Exception {
        Object[] none = {new String[0]};
        String histogram = (String) ManagementFactory.getPlatformMBeanServer().invoke(
                new ObjectName("com.sun.management:type=DiagnosticCommand"), "gcClassHistogram", none, new String[] {String[].class.getName()});
        var total = Pattern.compile("^Total +(\\d+)", Pattern.MULTILINE).matcher(histogram);
        return total.find() ? Long.parseLong(total.group(1)) : -1;
    }

    /// Live bytes on the heap, after a collection.
    private static long heap() {
        System.gc();
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    private static long collectionMillis() {
        return ManagementFactory.getGarbageCollectorMXBeans().stream().mapToLong(collector -> collector.getCollectionTime()).sum();
    }
}
