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

/// Blocks of several sizes in one piece of memory: taken from caches of the calling thread without any
/// lock, between which and a store for each size they move in batches.
///
/// A block is known by its offset in the memory. Nothing is written to the memory itself.
final class Blocks {
    /// A cache holds up to so many bytes of a size, and up to so many blocks.
    private static final int CACHED_BYTES = 32 << 10;

    private static final int CACHED_BLOCKS = 128;
    /// In all caches of a thread is at most so small a part of the memory.
    private static final int CACHED_PART = 64;
    /// An empty stack for no blocks: its first element counts those in it.
    private static final long[] NONE = {0};
    /// Virtual threads come in numbers that caches of their own do not fit to: they share these.
    private static final int SHARED_CACHES = Integer.highestOneBit(4 * Runtime.getRuntime().availableProcessors());

    private static final int RECENT = 256;

    private final MemorySegment memory;
    private final Spans spans;
    private final Store[] stores;
    /// The caches of threads that were here lately, by the last bits of their numbers: most calls find
    /// theirs here. Written without a lock: an element is any cache, and its owner is compared.
    private final Cache[] recent = new Cache[RECENT];
    private final ThreadLocal<Cache> own = ThreadLocal.withInitial(this::newCache);
    private final Cache[] shared = new Cache[SHARED_CACHES];
    /// All caches of threads; guarded by itself.
    private final List<Cache> caches = new ArrayList<>();

    /// @param memory begins on a boundary of a unit
    /// @param sizes of blocks, in bytes
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

    /// The blocks of one size that no thread has.
    private final class Store {
        private final int sizeClass;
        private final long blockSize;
        private final int unitsOfSpan;
        /// How many blocks go to a cache or come from it at once.
        private final int batch;
        /// Spans with blocks, the lowest first: those above become empty with time, and serve other sizes.
        private final TreeSet<Span> partial =
                new TreeSet<>(Comparator.comparingInt((Span span) -> span.first));

        Store(int sizeClass, long blockSize, int cachedBytes) {
            this.sizeClass = sizeClass;
            this.blockSize = blockSize;
            this.unitsOfSpan = unitsFor(blockSize);
            this.batch = Math.clamp(cachedBytes / blockSize / 2, 1, CACHED_BLOCKS / 2);
        }

        /// Fills a stack with up to a batch; none where the memory is used up.
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

        /// Takes the blocks of a stack from its bottom on.
        synchronized void drain(long[] stack, int count) {
            for (int i = 1; i <= count; i++) {
                Span span = spans.holding(stack[i]);
                span.give(span.blockAt(stack[i]));
                if (span.available() == 1) {
                    partial.add(span);
                }
                // One empty span is kept, for the next that comes.
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

    /// The shortest span that loses little at its end. The fewer blocks it has, the sooner all of them are
    /// free, and it can serve another size; but each costs some work.
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

    /// Stacks of free blocks, one for each size; of one thread, or, under its lock, of several.
    private static final class Cache {
        /// Whose it is; none if it is shared.
        private final @Nullable WeakReference<Thread> owner;

        /// The number of that thread, which no other ever gets; 0 if it is shared.
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

    /// The offset of a block; -1 where there is none left.
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
            giveBackUnused(cache);
            store.fill(stack);
        }
        return stack;
    }

    /// Nothing is left: what lies in caches that nobody else uses, and in spans of other sizes, is collected.
    private void giveBackUnused(Cache cache) {
        empty(cache);
        List<Cache> abandoned;
        synchronized (caches) {
            abandoned = caches.stream().filter(Cache::isAbandoned).toList();
            caches.removeAll(abandoned);
        }
        abandoned.forEach(this::empty);
        for (Cache other : shared) {
            // Never two locks of caches at once.
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

    /// The offset of a block of its own, in whole units; -1 where there is none left.
    long takeLarge(long bytes, long alignment) {
        long units = (bytes + Spans.UNIT - 1) >>> Spans.UNIT_LOG2;
        if (units > spans.units()) {
            return -1;
        }
        long aligned = Math.max(1, alignment >>> Spans.UNIT_LOG2);
        Span span = spans.large((int) units, aligned);
        if (span == null) {
            giveBackUnused(Thread.currentThread().isVirtual() ? new Cache(null, stores.length) : own.get());
            span = spans.large((int) units, aligned);
            if (span == null) {
                return -1;
            }
        }
        span.taken[0] = 1;
        return span.start();
    }

    /// Takes a block back.
    ///
    /// @throws IllegalArgumentException if no block begins there
    /// @throws IllegalStateException if it was given back already
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

    /// The size of the block that begins there, in bytes.
    ///
    /// @throws IllegalArgumentException if no block begins there, or none that is taken
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
        // In a free span no block begins.
        if (span == null) {
            throw noBlock(offset);
        }
        return span;
    }

    private static IllegalArgumentException noBlock(long offset) {
        return new IllegalArgumentException("no block begins at offset " + offset);
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
