package io.hugewise.cache;

import io.hugewise.memory.SegmentPool;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;
import java.util.function.LongPredicate;
import org.jspecify.annotations.Nullable;

/// Keys and values as bytes in segments of memory.
///
/// An entry is appended to the window's log, then the index is made to refer to it. Readers hold a pin, so an entry
/// that they have found stays until they end, even if it is replaced, removed or evicted during that time.
final class Store {
    final Segments segments;
    final Entries entries;
    final Clock clock;
    final Index index;
    final Evictor evictor;
    /// Entries that found no memory, or were too large.
    final LongAdder rejected = new LongAdder();
    final LongAdder hits = new LongAdder();
    final LongAdder misses = new LongAdder();
    private final Pins pins = new Pins();
    private final long seed;
    private final Maintenance maintenance;
    private boolean isClosed;
    private long adaptedHits;
    private long adaptedRequests;

    Store(SegmentPool pool, boolean canExpire, Clock clock, long seed, Removals removals) {
        this.segments = new Segments(pool);
        this.entries = new Entries(canExpire, segments.size);
        this.clock = clock;
        this.seed = seed;
        this.index = new Index(segments);
        this.evictor = new Evictor(segments, index, entries, pins, clock, seed, removals);
        this.maintenance = new Maintenance(this::maintain);
    }

    long hash(byte[] key) {
        return Hash.of(key, seed);
    }

    // --- Reading -----------------------------------------------------------------------------------

    /// Reads the entry of a key, and counts the use.
    ///
    /// @param reader reads the entry at an address, which is valid until it returns
    /// @return the value that the reader returned; null if the key has no entry
    <R> @Nullable R read(byte[] key, long hash, LongFunction<? extends @Nullable R> reader) {
        int pin = pins.pin();
        try {
            long entry = index.find(key, hash, entries, true);
            if (entry == 0 || isExpired(entry)) {
                misses.increment();
                return null;
            }
            hits.increment();
            return reader.apply(entry);
        } finally {
            pins.unpin(pin);
        }
    }

    /// Reads the entry of a key without counting.
    <R> @Nullable R peek(byte[] key, long hash, LongFunction<? extends @Nullable R> reader) {
        int pin = pins.pin();
        try {
            long entry = index.find(key, hash, entries, false);
            return entry == 0 || isExpired(entry) ? null : reader.apply(entry);
        } finally {
            pins.unpin(pin);
        }
    }

    /// Changes when an entry expires. Its reader calls it.
    void setExpiry(long entry, int expiry) {
        if (entries.expiry(entry) != expiry) {
            entries.setExpiry(entry, expiry);
            evictor.expires(entry);
        }
    }

    /// Value of an entry that is being read. A large one is a copy.
    MemorySegment value(long entry) {
        int size = entries.valueSize(entry);
        if (!entries.isLarge(entry)) {
            return segments.pool.memory().asSlice(entries.value(entry) - segments.base, size);
        }
        MemorySegment whole = MemorySegment.ofArray(new byte[size]);
        parts(entry, size, (part, at, length) -> MemorySegment.copy(Memory.ALL, part, whole, at, length));
        return whole;
    }

    private interface Part {
        void copy(long part, long at, long length);
    }

    private void parts(long entry, long size, Part copy) {
        for (int i = 0; i < entries.segments(size); i++) {
            long at = (long) i * segments.size;
            copy.copy(segments.address(entries.part(entry, i)), at, Math.min(segments.size, size - at));
        }
    }

    boolean isExpired(long entry) {
        return Clock.isPast(entries.expiry(entry), clock.now());
    }

    /// Calls a function with the addresses of the entries of the next part of the index.
    ///
    /// @return whether there was one
    boolean visit(Index.Cursor cursor, LongConsumer reader) {
        int pin = pins.pin();
        try {
            if (!cursor.advance()) {
                return false;
            }
            for (int i = 0; i < cursor.count(); i++) {
                if (!isExpired(cursor.entry(i))) {
                    reader.accept(cursor.entry(i));
                }
            }
            return true;
        } finally {
            pins.unpin(pin);
        }
    }

    // --- Writing -----------------------------------------------------------------------------------

    /// Adds or replaces an entry.
    ///
    /// @param isWanted is called with the address of the present entry, or 0, while no other thread changes it
    /// @param value writes the value
    /// @param old is called with the address of the replaced entry
    /// @return whether the entry was wanted
    boolean put(byte[] key, long hash, int valueSize, int expiry, LongPredicate isWanted, Consumer<MemorySegment> value, LongConsumer old) {
        boolean isLarge = entries.isLarge(key.length, valueSize);
        long size = entries.size(key.length, valueSize);
        int[] parts = isLarge ? new int[entries.segments(valueSize)] : new int[0];
        long entry = size > segments.size || parts.length > segments.limit() / 2 ? 0 : append(size, parts);
        if (entry == 0) {
            rejected.increment();
            return remove(key, hash, isWanted, old) || isAbsentWanted(key, hash, isWanted);
        }
        int pin = pins.pin();
        boolean isPublished = false;
        try {
            entries.writeHeader(entry, key.length, valueSize, isLarge);
            entries.setExpiry(entry, expiry);
            Memory.write(key, entries.key(entry));
            for (int i = 0; i < parts.length; i++) {
                entries.setPart(entry, i, parts[i]);
            }
            writeValue(entry, valueSize, isLarge, value);
            long replaced = 0;
            boolean wasWanted;
            boolean hasRoom = true;
            ReentrantLock stripe = index.lock(hash);
            stripe.lock();
            try {
                long present = index.find(key, hash, entries, false);
                boolean isThere = present != 0 && !isExpired(present);
                wasWanted = isWanted.test(isThere ? present : 0);
                if (wasWanted) {
                    replaced = present;
                    hasRoom = publish(entry, hash, present);
                    isPublished = hasRoom;
                }
            } finally {
                stripe.unlock();
            }
            if (isPublished) {
                evictor.inserted.add(size);
            }
            if (replaced != 0) {
                evictor.dropped(replaced);
                old.accept(replaced);
            } else if (isPublished) {
                evictor.sketch.increment(hash);
                index.growIfFull();
            }
            rejected.add(wasWanted && !hasRoom ? 1 : 0);
            return wasWanted;
        } finally {
            if (!isPublished) {
                for (int part : parts) {
                    evictor.retire(part);
                }
            }
            evictor.window.written(entry);
            pins.unpin(pin);
        }
    }

    private boolean publish(long entry, long hash, long present) {
        segments.addLive(entry, entries.size(entry));
        evictor.expires(entry);
        if (present != 0) {
            long at = index.place(present, hash);
            index.replace(at, entry, hash, Index.uses(Memory.word(at)));
            return true;
        }
        if (index.add(entry, hash)) {
            return true;
        }
        segments.addLive(entry, -entries.size(entry));
        return false;
    }

    private boolean isAbsentWanted(byte[] key, long hash, LongPredicate isWanted) {
        return peek(key, hash, entry -> true) == null && isWanted.test(0);
    }

    private void writeValue(long entry, int size, boolean isLarge, Consumer<MemorySegment> value) {
        if (!isLarge) {
            value.accept(Memory.slice(entries.value(entry), size));
            return;
        }
        MemorySegment whole = MemorySegment.ofArray(new byte[size]);
        value.accept(whole);
        parts(entry, size, (part, at, length) -> MemorySegment.copy(whole, at, Memory.ALL, part, length));
    }

    /// Removes an entry.
    ///
    /// @param isWanted is called with the address of the present entry while no other thread changes it
    /// @param old is called with the address of the removed entry
    /// @return whether it was removed
    boolean remove(byte[] key, long hash, LongPredicate isWanted, LongConsumer old) {
        int pin = pins.pin();
        try {
            long present;
            ReentrantLock stripe = index.lock(hash);
            stripe.lock();
            try {
                present = index.find(key, hash, entries, false);
                boolean isThere = present != 0 && !isExpired(present);
                if (!isThere || !isWanted.test(present)) {
                    return false;
                }
                index.remove(index.place(present, hash), hash);
            } finally {
                stripe.unlock();
            }
            evictor.dropped(present);
            old.accept(present);
            return true;
        } finally {
            pins.unpin(pin);
        }
    }

    // --- Memory ------------------------------------------------------------------------------------

    /// Appends room for an entry and takes segments for its parts.
    ///
    /// @return its address, or 0 if no memory is free
    private long append(long size, int[] parts) {
        if (parts.length > 0 && !takeParts(parts)) {
            return 0;
        }
        while (true) {
            long entry = evictor.window.tryAppend(size);
            if (entry != 0) {
                return entry;
            }
            evictor.lock.lock();
            try {
                entry = evictor.window.tryAppend(size);
                if (entry != 0) {
                    return entry;
                }
                int segment = take();
                if (segment < 0) {
                    for (int part : parts) {
                        evictor.retire(part);
                    }
                    return 0;
                }
                evictor.window.close();
                evictor.window.open(segment);
                adapt();
            } finally {
                evictor.lock.unlock();
            }
        }
    }

    private boolean takeParts(int[] parts) {
        evictor.lock.lock();
        try {
            for (int i = 0; i < parts.length; i++) {
                parts[i] = take();
                if (parts[i] < 0) {
                    while (--i >= 0) {
                        evictor.retire(parts[i]);
                    }
                    return false;
                }
            }
            evictor.window.ownsParts(parts.length);
            return true;
        } finally {
            evictor.lock.unlock();
        }
    }

    /// Takes a segment; evicts if none is free. The caller holds the lock of evictions.
    private int take() {
        checkOpen();
        int segment = segments.tryTake(Segments.RESERVED);
        for (int tries = 0; segment < 0 && tries < 2 * segments.limit() && evictor.evict(); tries++) {
            segment = segments.tryTake(Segments.RESERVED);
        }
        if (segments.free() < evictor.ahead()) {
            maintenance.wake();
        }
        return segment;
    }

    private void checkOpen() {
        if (isClosed) {
            throw new IllegalStateException("the cache is closed");
        }
    }

    private void adapt() {
        long hit = hits.sum();
        long requests = hit + misses.sum();
        evictor.adapt(requests - adaptedRequests, hit - adaptedHits);
        adaptedRequests = requests;
        adaptedHits = hit;
    }

    /// Frees segments in advance, and what has expired.
    void maintain() {
        for (int tries = 0; tries < segments.limit(); tries++) {
            evictor.lock.lock();
            try {
                if (isClosed || segments.free() >= evictor.ahead() || !evictor.evict()) {
                    break;
                }
            } finally {
                evictor.lock.unlock();
            }
        }
        evictor.lock.lock();
        try {
            if (!isClosed && entries.header > Long.BYTES) {
                evictor.expire();
            }
        } finally {
            evictor.lock.unlock();
        }
    }

    void clear() {
        evictor.lock.lock();
        try {
            checkOpen();
            evictor.clear();
        } finally {
            evictor.lock.unlock();
        }
    }

    /// Changes the number of segments that may be in use, and frees others.
    ///
    /// @return whether no more are in use
    boolean limit(int count) {
        evictor.lock.lock();
        try {
            checkOpen();
            segments.setLimit(count);
            for (int tries = 0; segments.free() < evictor.ahead() && tries < 2 * segments.pool.count() && evictor.evict(); tries++) {
                Thread.onSpinWait();
            }
            return segments.free() >= 0;
        } finally {
            evictor.lock.unlock();
        }
    }

    /// Ends all accesses; memory may be released then.
    ///
    /// @return whether it was open
    boolean close() {
        evictor.lock.lock();
        try {
            if (isClosed) {
                return false;
            }
            isClosed = true;
            pins.close();
        } finally {
            evictor.lock.unlock();
        }
        maintenance.close();
        return true;
    }
}
