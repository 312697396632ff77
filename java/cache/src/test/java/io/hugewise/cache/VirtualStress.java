package io.hugewise.cache;

import io.hugewise.memory.Backing;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReference;

/// A program with virtual threads that use a full cache, some of them with functions that stall: `VirtualStress SECONDS`. It is
/// run with two carriers. All other threads go on, whichever thread is unmounted and where.
final class VirtualStress {
    private static final int THREADS = 64;
    /// Of these, those whose functions stall.
    private static final int STALLING = 12;
    private static final int KEYS = 30_000;
    private static final long STALL_MILLIS = 500;
    /// Much longer than any operation takes that does not wait for a function.
    private static final Duration LONG = Duration.ofSeconds(120);

    private static final ThreadLocal<Boolean> IS_STALLING = ThreadLocal.withInitial(() -> false);
    private static final AtomicReference<Throwable> UNEXPECTED = new AtomicReference<>();
    private static volatile boolean isEnded;

    private VirtualStress() {}

    private static void stall() {
        if (IS_STALLING.get()) {
            try {
                Thread.sleep(STALL_MILLIS);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /// A serializer that stalls.
    private static final class Stalling implements Serializer<byte[]> {
        @Override
        public int size(byte[] value) {
            return value.length;
        }

        @Override
        public void write(byte[] value, MemorySegment to) {
            stall();
            Serializers.bytes().write(value, to);
        }

        @Override
        public byte[] read(MemorySegment from) {
            stall();
            return Serializers.bytes().read(from);
        }
    }

    private static void use(HugeCache<Long, byte[]> cache, long key, int kind) {
        byte[] value = new byte[(int) (Math.abs(key) % 500)];
        switch (kind) {
            case 0, 1 -> cache.put(key, value);
            case 2 -> cache.getIfPresent(key);
            case 3 -> cache.get(key, _ -> {
                stall();
                return value;
            });
            case 4 -> cache.asMap().compute(key, (_, _) -> {
                stall();
                return value;
            });
            case 5 -> cache.read(key, memory -> {
                stall();
                return memory.byteSize();
            });
            case 6 -> cache.invalidate(key);
            default -> cache.asMap().keySet().iterator().hasNext();
        }
    }

    public static void main(String[] arguments) throws Exception {
        var counts = new AtomicLongArray(THREADS);
        List<Thread> threads = new ArrayList<>();
        var cache = HugeCache.builder(Serializers.longs(), new Stalling()).maximumBytes(4 << 20).memory(options -> options.only(Backing.base()))
                .heapEntries(500).removalListener((_, _, _) -> stall()).writeBack(WriteBack.<Long, byte[]>to(_ -> {}).patience(LONG)).build();
        for (int i = 0; i < THREADS; i++) {
            int number = i;
            threads.add(Thread.ofVirtual().start(() -> {
                var random = new SplittableRandom(number);
                IS_STALLING.set(number < STALLING);
                try {
                    while (!isEnded) {
                        // Threads do not wait for the functions of others, which have keys of their own.
                        long key = number < STALLING ? -1 - random.nextInt(STALLING) : random.nextInt(KEYS);
                        use(cache, key, random.nextInt(8));
                        counts.incrementAndGet(number);
                    }
                } catch (Throwable error) {
                    UNEXPECTED.compareAndSet(null, error);
                }
            }));
        }
        long end = System.nanoTime() + Duration.ofSeconds(Long.parseLong(arguments[0])).toNanos();
        long[] before = new long[THREADS];
        while (System.nanoTime() < end) {
            await(counts, before, threads);
        }
        isEnded = true;
        for (Thread thread : threads) {
            if (!thread.join(LONG)) {
                throw new IllegalStateException("a thread hangs: " + Arrays.toString(thread.getStackTrace()));
            }
        }
        check();
        cache.flush();
        System.out.println("all threads went on");
        System.exit(0);
    }

    private static void check() {
        if (UNEXPECTED.get() != null) {
            throw new IllegalStateException(UNEXPECTED.get());
        }
    }

    /// Waits until each thread has done something since the last time.
    private static void await(AtomicLongArray counts, long[] before, List<Thread> threads) throws InterruptedException {
        long limit = System.nanoTime() + LONG.toNanos();
        for (int i = 0; i < THREADS; i++) {
            while (counts.get(i) == before[i]) {
                check();
                if (System.nanoTime() - limit > 0) {
                    throw new IllegalStateException("thread " + i + " hangs: " + Arrays.toString(threads.get(i).getStackTrace()));
                }
                Thread.sleep(1);
            }
            before[i] = counts.get(i);
        }
    }
}
