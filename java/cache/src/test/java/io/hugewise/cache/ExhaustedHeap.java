package io.hugewise.cache;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import io.hugewise.memory.MemoryExhaustedException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

/// A program whose heap is exhausted again and again while threads use caches and an allocator. Afterwards all have what they
/// should: `ExhaustedHeap SECONDS KIND...`.
///
/// Each key is changed by one thread. A change that threw an error may have been made or not.
final class ExhaustedHeap {
    private static final int KEYS = 4000;
    private static final int THREADS = 2;
    private static final Duration LONG = Duration.ofSeconds(120);

    private static final AtomicReference<Throwable> UNEXPECTED = new AtomicReference<>();
    private static final AtomicLong ERRORS = new AtomicLong();
    private static volatile boolean isEnded;

    private ExhaustedHeap() {}

    enum Kind { BEHIND, THROUGH, LOADING, HEAP_TIER, EXPIRING, ALLOCATOR }

    /// Rows on the heap that take no memory when they are written.
    private final AtomicIntegerArray rows = new AtomicIntegerArray(KEYS);
    /// The last version of each key that was acknowledged, and the last that was tried.
    private final int[] acknowledged = new int[KEYS];
    private final int[] tried = new int[KEYS];

    private static byte[] value(int version) {
        byte[] value = new byte[200 + version % 300];
        ByteBuffer.wrap(value).putInt(version);
        return value;
    }

    private static int version(byte[] value) {
        return ByteBuffer.wrap(value).getInt();
    }

    private void write(Iterable<CacheWriter.Change<Integer, byte[]>> changes) {
        for (CacheWriter.Change<Integer, byte[]> change : changes) {
            byte[] value = change.value();
            rows.set(change.key(), value == null ? 0 : version(value));
        }
    }

    private HugeCache<Integer, byte[]> cache(Kind kind) {
        var builder = HugeCache.builder(Serializers.ints(), Serializers.bytes()).maximumBytes(4 << 20).memory(options -> options.only(Backing.base()));
        return switch (kind) {
            case BEHIND -> builder.writeBack(WriteBack.<Integer, byte[]>to(this::write).window(Duration.ofMillis(300)).patience(LONG)).build();
            case THROUGH -> builder.writeThrough(this::write).removalListener((_, _, _) -> {}).executor(Runnable::run).build();
            case LOADING -> builder.writeThrough(this::write).loader(key -> value(rows.get(key))).refreshAfterWrite(Duration.ofMillis(1)).build();
            case HEAP_TIER -> builder.writeThrough(this::write).heapEntries(500).build();
            default -> builder.writeThrough(this::write).expireAfterWrite(Duration.ofMillis(500)).removalListener((_, _, _) -> {}).build();
        };
    }

    /// One operation on a key that belongs to the calling thread.
    private void use(HugeCache<Integer, byte[]> cache, int key, int turn) {
        switch (turn % 8) {
            case 0, 1, 2 -> {
                int version = ++tried[key];
                cache.put(key, value(version));
                acknowledged[key] = version;
            }
            case 3 -> {
                int version = ++tried[key];
                cache.asMap().compute(key, (_, _) -> value(version));
                acknowledged[key] = version;
            }
            case 4 -> check(key, cache.getIfPresent(key));
            case 5 -> check(key, cache.get(key, of -> value(rows.get(of))));
            case 6 -> check(key, cache.getAll(List.of(key), _ -> Map.of(key, value(rows.get(key)))).get(key));
            default -> cache.asMap().keySet().iterator().hasNext();
        }
    }

    private void check(int key, byte[] value) {
        if (value != null && (version(value) < acknowledged[key] || version(value) > tried[key])) {
            throw new IllegalStateException("key " + key + " has version " + version(value) + ", " + acknowledged[key] + " was acknowledged");
        }
    }

    private static void loop(Runnable operation) {
        while (!isEnded) {
            try {
                operation.run();
            } catch (OutOfMemoryError | MemoryExhaustedException _) {
                ERRORS.incrementAndGet();
            } catch (Throwable error) {
                Throwable cause = error;
                while (cause != null && !(cause instanceof OutOfMemoryError)) {
                    cause = cause.getCause();
                }
                if (cause == null && !(error instanceof java.util.NoSuchElementException)) {
                    UNEXPECTED.compareAndSet(null, error);
                }
            }
        }
    }

    private List<Thread> start(HugeCache<Integer, byte[]> cache) {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            int own = i;
            int[] turn = {0};
            threads.add(Thread.ofPlatform().daemon().start(() -> loop(() -> {
                int next = turn[0]++;
                use(cache, Math.floorMod(next * 31, KEYS / THREADS) * THREADS + own, next);
            })));
        }
        return threads;
    }

    private void checkAtEnd(Kind kind, HugeCache<Integer, byte[]> cache) throws InterruptedException {
        cache.flush();
        for (int key = 0; key < KEYS; key++) {
            if (rows.get(key) < acknowledged[key] || rows.get(key) > tried[key]) {
                throw new IllegalStateException(kind + ": the store has version " + rows.get(key) + " of key " + key + ", " + acknowledged[key] + " was acknowledged");
            }
            byte[] value = cache.asMap().get(key);
            if (value != null && version(value) != rows.get(key)) {
                throw new IllegalStateException(kind + ": the cache has version " + version(value) + " of key " + key + ", the store " + rows.get(key));
            }
        }
        if (kind == Kind.EXPIRING) {
            for (long end = System.nanoTime() + LONG.toNanos(); cache.estimatedSize() > 0 && System.nanoTime() < end; ) {
                Thread.sleep(10);
            }
        }
        long count = cache.asMap().keySet().stream().count();
        if (count != cache.estimatedSize()) {
            throw new IllegalStateException(kind + ": " + count + " entries, and " + cache.estimatedSize() + " were counted");
        }
        for (int key = 0; key < 3 * KEYS; key++) {
            cache.put(key % KEYS, value(rows.get(key % KEYS)));
        }
        cache.invalidateAll();
        cache.cleanUp();
        if (cache.estimatedSize() != 0 || cache.usedBytes() > cache.indexBytes() + 4 * 65536) {
            throw new IllegalStateException(kind + ": " + cache.estimatedSize() + " entries and " + cache.usedBytes() + " bytes of none");
        }
        cache.close();
    }

    // --- Allocator -----------------------------------------------------------------------------------

    private static void allocate(HugeAllocator allocator, MemorySegment[] blocks, int turn) {
        int place = turn % blocks.length;
        if (blocks[place] == null) {
            blocks[place] = allocator.allocate(1 + turn * 31 % 70_000);
        } else if (turn % 3 == 0) {
            blocks[place] = allocator.reallocate(blocks[place], 1 + turn * 17 % 40_000);
        } else {
            allocator.free(blocks[place]);
            blocks[place] = null;
        }
    }

    // --- All -------------------------------------------------------------------------------------------

    /// Takes all memory of the heap, and releases it.
    private static void exhaust() {
        Object[] first = null;
        for (int size : new int[] {1 << 16, 1 << 10, 2}) {
            try {
                while (true) {
                    Object[] next = new Object[size];
                    next[0] = first;
                    first = next;
                }
            } catch (OutOfMemoryError _) {
                ERRORS.incrementAndGet();
            }
        }
        if (first != null) {
            Thread.yield();
        }
    }

    public static void main(String[] arguments) throws Exception {
        long seconds = Long.parseLong(arguments[0]);
        Map<Kind, ExhaustedHeap> all = new LinkedHashMap<>();
        Map<Kind, HugeCache<Integer, byte[]>> caches = new LinkedHashMap<>();
        List<Thread> threads = new ArrayList<>();
        HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(16 << 20).only(Backing.base()));
        HugeAllocator allocator = HugeAllocator.decommitting(arena, Duration.ofMillis(10));
        var blocks = new MemorySegment[THREADS][600];
        for (String name : Arrays.asList(arguments).subList(1, arguments.length)) {
            Kind kind = Kind.valueOf(name);
            if (kind == Kind.ALLOCATOR) {
                for (int i = 0; i < THREADS; i++) {
                    MemorySegment[] own = blocks[i];
                    int[] turn = {0};
                    threads.add(Thread.ofPlatform().daemon().start(() -> loop(() -> allocate(allocator, own, turn[0]++ & Integer.MAX_VALUE))));
                }
            } else {
                var of = new ExhaustedHeap();
                all.put(kind, of);
                caches.put(kind, of.cache(kind));
                threads.addAll(of.start(caches.get(kind)));
            }
        }
        // Until all classes are loaded.
        Thread.sleep(1500);
        for (long end = System.nanoTime() + Duration.ofSeconds(seconds).toNanos(); System.nanoTime() < end; ) {
            exhaust();
            Thread.sleep(1);
        }
        isEnded = true;
        for (Thread thread : threads) {
            if (!thread.join(LONG)) {
                throw new IllegalStateException("a thread hangs: " + Arrays.toString(thread.getStackTrace()));
            }
        }
        if (UNEXPECTED.get() != null) {
            throw new IllegalStateException("unexpected", UNEXPECTED.get());
        }
        for (Kind kind : all.keySet()) {
            all.get(kind).checkAtEnd(kind, caches.get(kind));
        }
        for (MemorySegment[] own : blocks) {
            Arrays.stream(own).filter(block -> block != null).forEach(allocator::free);
        }
        allocator.trim();
        if (allocator.live() != 0 || allocator.held() != 0) {
            throw new IllegalStateException("blocks are lost: " + allocator.live() + " bytes live, " + allocator.held() + " held");
        }
        System.out.println("all as it should be after " + ERRORS.get() + " errors");
        System.exit(0);
    }
}
