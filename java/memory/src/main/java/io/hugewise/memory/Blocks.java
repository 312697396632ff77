package io.hugewise.memory;

import java.lang.foreign.MemorySegment;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/// Blocks of several sizes in one memory segment. They are taken from a cache of the calling thread without a
/// lock; caches exchange batches with one store per size.
///
/// A block is identified by its offset in the memory. Metadata is outside the memory.
final class Blocks {
    /// Limits of a cache, for each block size.
    private static final int CACHED_BYTES = 32 << 10;

    private static final int CACHED_BLOCKS = 128;
    /// A thread's caches hold at most 1/64 of the memory.
    private static final int CACHED_PART = 64;
    /// A stack of capacity 0. The first element of a stack is its number of blocks.
    private static final long[] NONE = {0};
    /// Number of caches shared by virtual threads, which are too many for a cache each.
    private static final int SHARED_CACHES = Integer.highestOneBit(4 * Runtime.getRuntime().availableProcessors());

    private static final int RECENT = 256;

    private final MemorySegment memory;
    private final Spans spans;
    private final Store[] stores;
    /// Caches of recent threads, indexed by the low bits of the thread id; most calls find theirs here.
    /// Written without a lock: readers compare the owner.
    private final Cache[] recent = new Cache[RECENT];
    private final ThreadLocal<Cache> own = ThreadLocal.withInitial(this::newCache);
    private final Cache[] shared = new Cache[SHARED_CACHES];
    /// All caches of platform threads; guarded by itself.
    private final List<Cache> caches = new ArrayList<>();

    /// @param memory segment aligned to a unit
    /// @param sizes block sizes in bytes
    Blocks(MemorySegment memory, long[] sizes) {
        this.memory = memory;
        this.spans = new Spans(
                memory.address() >>> Spans.UNIT_LOG2,
                Math.toIntExact(Math.min(memory.byteSize() >>> Spans.UNIT_LOG2, Integer.MAX_VALUE - 8)));
        this.stores = new Store[sizes.length];
        long cached = memory.byteSize() / CACHED_PART / sizes.length;
        for (int i = 0; i < sizes.length; i++) {
            stores[i] = new Store(i, sizes[i], (int) Math.min(cached, CACHED_BYTES));
        }
        for (int i = 0; i < SHARED_CACHES; i++) {
            shared[i] = new Cache(null, sizes.length);
        }
        Arrays.fill(recent, shared[0]);
    }

    MemorySegment memory() {
        return memory;
    }

    /// Free blocks of one size that are in no cache.
    private final class Store {
        private final int sizeClass;
        private final long blockSize;
        private final int unitsOfSpan;
        /// Number of blocks moved to or from a cache at once.
        private final int batch;
        /// Spans with available blocks, the lowest first, so that higher spans become empty and serve other
        /// sizes.
        private final TreeSet<Span> partial =
                new TreeSet<>(Comparator.comparingInt((Span span) -> span.first));

        Store(int sizeClass, long blockSize, int cachedBytes) {
            this.sizeClass = sizeClass;
            this.blockSize = blockSize;
            this.unitsOfSpan = unitsFor(blockSize);
            this.batch = Math.clamp(cachedBytes / blockSize / 2, 1, CACHED_BLOCKS / 2);
        }

        /// Adds up to a batch of blocks to a stack; returns false if there are none.
        synchronized boolean fill(long[] stack) {
            int wanted = batch;
            while (wanted > 0) {
                Span span = partial.isEmpty() ? spans.cut(unitsOfSpan, sizeClass, blockSize) : partial.first();
                if (span == null) {
                    break;
                }
                if (span.available() == span.blocks) {
                    partial.add(span);
                }
                while (wanted > 0 && span.available() > 0) {
                    stack[(int) ++stack[0]] = span.offsetOf(span.take());
                    wanted--;
                }
                if (span.available() == 0) {
                    partial.remove(span);
                }
            }
            return wanted < batch;
        }

        /// Returns `count` blocks from the bottom of a stack.
        synchronized void drain(long[] stack, int count) {
            for (int i = 1; i <= count; i++) {
                Span span = spans.holding(stack[i]);
                span.give(span.blockAt(stack[i]));
                if (span.available() == 1) {
                    partial.add(span);
                }
                // Keeps one empty span for the next request.
                if (span.available() == span.blocks && partial.size() > 1) {
                    partial.remove(span);
                    spans.give(span);
                }
            }
            System.arraycopy(stack, count + 1, stack, 1, (int) stack[0] - count);
            stack[0] -= count;
        }

        synchronized void giveEmptySpans() {
            for (Iterator<Span> all = partial.iterator(); all.hasNext(); ) {
                Span span = all.next();
                if (span.available() == span.blocks) {
                    all.remove();
                    spans.give(span);
                }
            }
        }
    }

    /// Units of the shortest span that wastes little at its end. Fewer blocks per span become free together
    /// sooner, so that the span can serve another size; more blocks per span mean less work.
    private static int unitsFor(long blockSize) {
        int blocks = blockSize <= 1024 ? 4 : blockSize <= 8192 ? 2 : 1;
        int fewest = (int) ((blocks * blockSize + Spans.UNIT - 1) >> Spans.UNIT_LOG2);
        int best = fewest;
        for (int units = fewest; units < fewest + 16 && lost(best, blockSize) > 1.0 / 32; units++) {
            if (lost(units, blockSize) < lost(best, blockSize)) {
                best = units;
            }
        }
        return best;
    }

    private static double lost(int units, long blockSize) {
        double bytes = (double) units * Spans.UNIT;
        return (bytes - Span.blocksIn(units, blockSize) * blockSize) / bytes;
    }

    /// Stacks of free blocks, one per size, of one thread; or of several threads, under its lock.
    private static final class Cache {
        /// The owning thread; null if the cache is shared.
        private final @Nullable WeakReference<Thread> owner;

        /// Id of the owning thread, which is never reused; 0 if the cache is shared.
        private final long ownerId;

        private final long[][] stacks;

        Cache(@Nullable Thread owner, int sizes) {
            this.owner = owner == null ? null : new WeakReference<>(owner);
            this.ownerId = owner == null ? 0 : owner.threadId();
            this.stacks = new long[sizes][];
            Arrays.fill(stacks, NONE);
        }

        boolean isAbandoned() {
            Thread thread = owner == null ? null : owner.get();
            return owner != null && (thread == null || !thread.isAlive());
        }
    }

    private Cache newCache() {
        Cache cache = new Cache(Thread.currentThread(), stores.length);
        List<Cache> abandoned = new ArrayList<>();
        synchronized (caches) {
            for (Iterator<Cache> all = caches.iterator(); all.hasNext(); ) {
                Cache other = all.next();
                if (other.isAbandoned()) {
                    all.remove();
                    abandoned.add(other);
                }
            }
            caches.add(cache);
        }
        abandoned.forEach(this::empty);
        return cache;
    }

    private void empty(Cache cache) {
        for (int i = 0; i < stores.length; i++) {
            long[] stack = cache.stacks[i];
            if (stack[0] > 0) {
                stores[i].drain(stack, (int) stack[0]);
            }
        }
    }

    private Cache shared() {
        return shared[(int) Thread.currentThread().threadId() & SHARED_CACHES - 1];
    }

    /// Takes a block. Returns its offset in bytes, or -1 if none is left.
    long take(int sizeClass) {
        Thread thread = Thread.currentThread();
        Cache cache = recent[(int) thread.threadId() & RECENT - 1];
        if (cache.ownerId == thread.threadId()) {
            return take(cache, sizeClass);
        }
        if (thread.isVirtual()) {
            Cache of = shared();
            synchronized (of) {
                return take(of, sizeClass);
            }
        }
        return take(ownAndRecent(thread), sizeClass);
    }

    private Cache ownAndRecent(Thread thread) {
        Cache cache = own.get();
        recent[(int) thread.threadId() & RECENT - 1] = cache;
        return cache;
    }

    private long take(Cache cache, int sizeClass) {
        long[] stack = cache.stacks[sizeClass];
        int count = (int) stack[0];
        if (count == 0) {
            stack = filled(cache, sizeClass);
            count = (int) stack[0];
            if (count == 0) {
                return -1;
            }
        }
        stack[0]--;
        long offset = stack[count];
        Span span = spans.holding(offset);
        span.taken[span.blockHolding(offset)] = 1;
        return offset;
    }

    private long[] filled(Cache cache, int sizeClass) {
        Store store = stores[sizeClass];
        long[] stack = cache.stacks[sizeClass];
        if (stack.length == NONE.length) {
            stack = new long[1 + 2 * store.batch];
            cache.stacks[sizeClass] = stack;
        }
        if (!store.fill(stack)) {
            releaseUnused(cache);
            store.fill(stack);
        }
        return stack;
    }

    /// Called when memory is exhausted: frees the blocks of this, of abandoned and of shared caches, and the
    /// empty spans of all sizes.
    private void releaseUnused(Cache cache) {
        empty(cache);
        List<Cache> abandoned;
        synchronized (caches) {
            abandoned = caches.stream().filter(Cache::isAbandoned).toList();
            caches.removeAll(abandoned);
        }
        abandoned.forEach(this::empty);
        for (Cache other : shared) {
            // Never holds the locks of two caches.
            if (!Thread.holdsLock(cache)) {
                synchronized (other) {
                    empty(other);
                }
            }
        }
        for (Store store : stores) {
            store.giveEmptySpans();
        }
    }

    /// Takes a large block of whole units. Returns its offset in bytes, or -1 if no run is left.
    long takeLarge(long bytes, long alignment) {
        long units = (bytes + Spans.UNIT - 1) >>> Spans.UNIT_LOG2;
        if (units > spans.units()) {
            return -1;
        }
        long aligned = Math.max(1, alignment >>> Spans.UNIT_LOG2);
        Span span = spans.large((int) units, aligned);
        if (span == null) {
            releaseUnused(Thread.currentThread().isVirtual() ? new Cache(null, stores.length) : own.get());
            span = spans.large((int) units, aligned);
            if (span == null) {
                return -1;
            }
        }
        span.taken[0] = 1;
        return span.start();
    }

    /// Frees a block.
    ///
    /// @throws IllegalArgumentException if no block starts there
    /// @throws IllegalStateException if it was freed already
    void give(long offset) {
        Span span = spanOf(offset);
        int block = span.blockAt(offset);
        if (block < 0) {
            throw noBlock(offset);
        }
        if (span.taken[block] == 0) {
            throw new IllegalStateException("the block at offset " + offset + " was freed already");
        }
        span.taken[block] = 0;
        int sizeClass = span.sizeClass;
        Thread thread = Thread.currentThread();
        Cache cache = recent[(int) thread.threadId() & RECENT - 1];
        if (sizeClass == Span.LARGE) {
            spans.give(span);
        } else if (cache.ownerId == thread.threadId()) {
            give(cache, sizeClass, offset);
        } else if (thread.isVirtual()) {
            Cache of = shared();
            synchronized (of) {
                give(of, sizeClass, offset);
            }
        } else {
            give(ownAndRecent(thread), sizeClass, offset);
        }
    }

    private void give(Cache cache, int sizeClass, long offset) {
        long[] stack = cache.stacks[sizeClass];
        int count = (int) stack[0];
        if (count == stack.length - 1) {
            stack = withRoom(cache, sizeClass);
            count = (int) stack[0];
        }
        stack[count + 1] = offset;
        stack[0]++;
    }

    private long[] withRoom(Cache cache, int sizeClass) {
        Store store = stores[sizeClass];
        long[] stack = cache.stacks[sizeClass];
        if (stack.length == NONE.length) {
            stack = new long[1 + 2 * store.batch];
            cache.stacks[sizeClass] = stack;
        } else {
            store.drain(stack, store.batch);
        }
        return stack;
    }

    /// Size of the block at an offset, in bytes.
    ///
    /// @throws IllegalArgumentException if no allocated block starts there
    long sizeAt(long offset) {
        Span span = spanOf(offset);
        int block = span.blockAt(offset);
        if (block < 0 || span.taken[block] == 0) {
            throw noBlock(offset);
        }
        return span.blockSize;
    }

    private Span spanOf(long offset) {
        long unit = offset >>> Spans.UNIT_LOG2;
        Span span = unit < spans.units() ? spans.at(unit) : null;
        // No block starts in a free span: blockAt returns -1 there.
        if (span == null) {
            throw noBlock(offset);
        }
        return span;
    }

    private static IllegalArgumentException noBlock(long offset) {
        return new IllegalArgumentException("no block starts at offset " + offset);
    }

    long held() {
        return spans.held();
    }

    long reached() {
        return spans.reached();
    }

    long longestFree() {
        return spans.longestFree();
    }
}
