import java.nio.ByteBuffer;
import org.caffinitas.ohc.*;

/** Fills an OHC off-heap cache with several threads, then keeps it for some seconds. Arguments: MB, threads,
 * seconds, and optionally a file: the program ends once the file is not empty. */
public class OffHeapOhc {
    static final CacheSerializer<Long> KEYS = new CacheSerializer<Long>() {
        public void serialize(Long v, ByteBuffer b) { b.putLong(v); }
        public Long deserialize(ByteBuffer b) { return b.getLong(); }
        public int serializedSize(Long v) { return 8; }
    };
    static final CacheSerializer<byte[]> VALUES = new CacheSerializer<byte[]>() {
        public void serialize(byte[] v, ByteBuffer b) { b.putInt(v.length).put(v); }
        public byte[] deserialize(ByteBuffer b) { byte[] v = new byte[b.getInt()]; b.get(v); return v; }
        public int serializedSize(byte[] v) { return 4 + v.length; }
    };
    public static void main(String[] a) throws Exception {
        long bytes = Long.parseLong(a[0]) << 20;
        int threads = Integer.parseInt(a[1]);
        OHCache<Long, byte[]> cache = OHCacheBuilder.<Long, byte[]>newBuilder().keySerializer(KEYS)
            .valueSerializer(VALUES).capacity(bytes * 2).hashTableSize(1 << 15).build();
        long entries = bytes / 640;
        long begin = System.nanoTime();
        Thread[] all = new Thread[threads];
        for (int t = 0; t < threads; t++) {
            int mine = t;
            all[t] = new Thread(() -> {
                java.util.Random random = new java.util.Random(mine);
                for (long k = mine; k < entries; k += threads) cache.put(k, new byte[128 + random.nextInt(897)]);
            });
            all[t].start();
        }
        for (Thread t : all) t.join();
        System.out.println("filled: " + (System.nanoTime() - begin) / 1000000 + " ms, " + cache.size() + " entries");
        long end = System.nanoTime() + Long.parseLong(a[2]) * 1000000000L;
        while (System.nanoTime() < end && (a.length < 4 || new java.io.File(a[3]).length() == 0)) Thread.sleep(50);
        cache.close();
    }
}
