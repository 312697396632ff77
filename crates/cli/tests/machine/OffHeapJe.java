import com.sleepycat.je.*;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.*;

/** Fills the off-heap cache of JE with several threads, then keeps it for some seconds. Arguments: MB, threads,
 * seconds, and optionally a file: the program ends once the file is not empty. */
public class OffHeapJe {
    public static void main(String[] a) throws Exception {
        long bytes = Long.parseLong(a[0]) << 20;
        int threads = Integer.parseInt(a[1]);
        Path folder = Files.createDirectory(Path.of("je-data"));
        EnvironmentConfig config = new EnvironmentConfig();
        config.setLocking(false);
        config.setAllowCreate(true).setCacheSize(48 << 20);
        config.setOffHeapCacheSize(bytes * 2);
        Environment environment = new Environment(folder.toFile(), config);
        Database database = environment.openDatabase(null, "d", new DatabaseConfig().setAllowCreate(true));
        long entries = bytes / 640;
        long begin = System.nanoTime();
        Thread[] all = new Thread[threads];
        for (int t = 0; t < threads; t++) {
            int mine = t;
            all[t] = new Thread(() -> {
                java.util.Random random = new java.util.Random(mine);
                for (long k = mine; k < entries; k += threads)
                    database.put(null, new DatabaseEntry(ByteBuffer.allocate(8).putLong(k).array()), new DatabaseEntry(new byte[128 + random.nextInt(897)]));
            });
            all[t].start();
        }
        for (Thread t : all) t.join();
        EnvironmentStats stats = environment.getStats(null);
        System.out.println("filled: " + (System.nanoTime() - begin) / 1000000 + " ms, " + (stats.getOffHeapTotalBytes() >> 20) + " MB off-heap");
        long end = System.nanoTime() + Long.parseLong(a[2]) * 1000000000L;
        while (System.nanoTime() < end && (a.length < 4 || new java.io.File(a[3]).length() == 0)) Thread.sleep(50);
        Runtime.getRuntime().halt(0);
    }
}
