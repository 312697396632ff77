package io.hugewise.cache;

import io.hugewise.memory.SegmentPool;
import io.hugewise.memory.internal.Stack;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiConsumer;
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
    final LiveEntries live;
    final Evictor evictor;
    /// Entries that found no memory, or were too large.
    final LongAdder rejected = new LongAdder();
    final LongAdder hits = new LongAdder();
    final LongAdder misses = new LongAdder();
    private final Pins pins = new Pins();
    private final long seed;
    private final Values values;
    private final Retired retired;
    private final Leaving leaving;
    final Space space;

    /// Has the entries that the manifest has.
    ///
    /// @param pool of which no segment is taken
    Store(SegmentPool pool, Manifest manifest, boolean canExpire, Clock clock, Removals removals, Leaving leaving) {
        this.segments = new Segments(pool, manifest);
        this.entries = new Entries(canExpire, manifest.isKept(), segments.size);
        this.clock = clock;
        this.seed = manifest.seed();
        this.index = new Index(segments, entries);
        // After the index, whose recovery decides which chunks are used.
        var chunks = new Chunks(segments);
        this.values = new Values(segments, chunks, entries);
        this.retired = new Retired(segments, chunks, pins);
        var sketch = new Sketch(segments);
        this.live = new LiveEntries(segments, chunks, index, entries, retired, sketch, clock, seed, removals, leaving);
        this.leaving = leaving;
        this.evictor = new Evictor(segments, chunks, index, live, retired, sketch);
        manifest.open();
        this.space = new Space(segments, chunks, evictor, retired, clock, canExpire, removals::partEnded);
    }

    long hash(byte[] key) {
        return Hash.of(key, seed);
    }

    // --- Reading -----------------------------------------------------------------------------------

    /// Begins to read. Entries that are found stay valid until [#endRead].
    ///
    /// @return for `endRead`
    int beginRead() {
        return pins.pin();
    }

    void endRead(int read) {
        pins.unpin(read);
    }

    /// Finds the entry of a key, and counts the use. The caller has begun to read.
    ///
    /// @return the address of the entry, or 0 if the key has none
    long find(byte[] key, long hash) {
        long entry = index.find(key, hash, entries, true);
        if (entry == 0 || isExpired(entry)) {
            misses.increment();
            return 0;
        }
        hits.increment();
        return entry;
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

    /// The present generation of entries. If it is the same later, no entry was written where one was that a read has
    /// found that began after the first call.
    int generation() {
        return pins.epoch();
    }

    /// Calls a function while an entry that was read stays the one of its key, unless it is not any more, or this is not
    /// known.
    ///
    /// @param generation the one in which it was read
    void ifPresent(long entry, int generation, byte[] key, long hash, Runnable task) {
        int pin = pins.pin();
        ReentrantLock stripe = index.lock(hash);
        stripe.lock();
        try {
            if (pins.epoch() == generation && index.present(key, hash) == entry) {
                task.run();
            }
        } finally {
            stripe.unlock();
            pins.unpin(pin);
        }
    }

    /// @throws IllegalStateException if it is closed
    void checkOpen() {
        pins.checkOpen();
    }

    /// Counts a use of an entry that was read on the heap.
    void use(byte[] key, long hash) {
        int pin = pins.pin();
        try {
            index.find(key, hash, entries, true);
        } finally {
            pins.unpin(pin);
        }
    }

    /// Changes when an entry expires. Its reader calls it.
    void setExpiry(long entry, int expiry) {
        if (entries.expiry(entry) != expiry) {
            entries.setExpiry(entry, expiry);
            live.expires(entry);
        }
    }

    /// Value of an entry that is being read. A large one is a copy.
    MemorySegment value(long entry) {
        return values.read(entry);
    }

    /// Address of the first bytes of a value, as many as a chunk can have. The caller holds the stripe's lock if it writes
    /// there.
    long valueAddress(long entry) {
        return values.first(entry);
    }

    boolean isExpired(long entry) {
        return live.isExpired(entry);
    }

    /// Calls a function with the addresses of the entries of the next part of the index that has some.
    ///
    /// @return whether there was one
    boolean visit(Index.Cursor cursor, LongConsumer reader) {
        Stack.claim();
        clock.read();
        int pin = pins.pin();
        try {
            do {
                if (!cursor.advance()) {
                    return false;
                }
            } while (cursor.count() == 0);
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
    /// @param writer writes the value
    /// @param published is called when the index has the entry, while no other thread changes it
    /// @param old is called with the address of the replaced entry
    <V extends @Nullable Object> Outcome put(byte[] key, long hash, int valueSize, int expiry, LongPredicate isWanted, V value, BiConsumer<V, MemorySegment> writer,
            Runnable published, LongConsumer old) {
        long size = entries.size(key.length, valueSize);
        int[] parts = new int[entries.parts(key.length, valueSize)];
        long entry = fits(size, parts.length) ? space.append(size, parts) : 0;
        if (entry == 0) {
            rejected.increment();
            return remove(key, hash, isWanted, old) || isAbsentWanted(key, hash, isWanted) ? Outcome.REJECTED : Outcome.UNWANTED;
        }
        // If it is closed, the entry stays one that is being written.
        int pin = pins.pin();
        boolean isPublished = false;
        try {
            entries.writeHeader(entry, key.length, valueSize, parts.length > 0);
            entries.setExpiry(entry, expiry);
            Memory.write(key, entries.key(entry));
            for (int i = 0; i < parts.length; i++) {
                entries.setPart(entry, i, parts[i]);
            }
            values.write(entry, hash, value, writer);
            if (entries.hasChecksum) {
                entries.setChecksum(entry, Checksum.of(entry, entries, segments));
            }
            long replaced = 0;
            boolean wasWanted;
            boolean hasRoom = true;
            ReentrantLock stripe = index.lock(hash);
            stripe.lock();
            try {
                long present = index.present(key, hash);
                boolean isThere = present != 0 && !isExpired(present);
                wasWanted = isWanted.test(isThere ? present : 0);
                if (wasWanted) {
                    replaced = present;
                    hasRoom = publish(entry, hash, present);
                    isPublished = hasRoom;
                    if (isPublished) {
                        published.run();
                    }
                }
            } finally {
                stripe.unlock();
            }
            if (replaced != 0) {
                live.dropped(replaced);
            }
            if (isPublished) {
                evictor.compaction.inserted.add(live.bytes(entry));
            }
            if (replaced != 0) {
                old.accept(replaced);
            } else if (isPublished) {
                evictor.missed(hash);
                index.growIfFull();
            }
            rejected.add(wasWanted && !hasRoom ? 1 : 0);
            return !wasWanted ? Outcome.UNWANTED : hasRoom ? Outcome.ADDED : Outcome.REJECTED;
        } finally {
            if (!isPublished) {
                for (int part : parts) {
                    retired.addChunk(part);
                }
            }
            evictor.window.written(entry);
            pins.unpin(pin);
            space.maintenance.changed();
        }
    }

    private boolean publish(long entry, long hash, long present) {
        segments.addLive(entry, entries.size(entry));
        live.expires(entry);
        boolean isAdded = false;
        try {
            if (present == 0) {
                isAdded = index.add(entry, hash);
            } else {
                long at = index.place(present, hash);
                leaving.leaving(present, hash);
                index.replace(at, entry, hash, IndexWord.uses(Memory.word(at)));
                isAdded = true;
            }
            return isAdded;
        } finally {
            if (!isAdded) {
                segments.addLive(entry, -entries.size(entry));
            }
        }
    }

    /// Whether an entry is small enough.
    boolean fits(int keySize, int valueSize) {
        return fits(entries.size(keySize, valueSize), entries.parts(keySize, valueSize));
    }

    private boolean fits(long size, int parts) {
        return size <= segments.size && parts <= segments.limit() / 2 * Chunks.PER_SEGMENT;
    }

    private boolean isAbsentWanted(byte[] key, long hash, LongPredicate isWanted) {
        return peek(key, hash, entry -> true) == null && isWanted.test(0);
    }

    /// Removes an entry.
    ///
    /// @param isWanted is called with the address of the present entry, or 0, while no other thread changes it
    /// @param old is called with the address of the removed entry
    /// @return whether it was removed
    boolean remove(byte[] key, long hash, LongPredicate isWanted, LongConsumer old) {
        int pin = pins.pin();
        try {
            long present;
            ReentrantLock stripe = index.lock(hash);
            stripe.lock();
            try {
                present = index.present(key, hash);
                boolean isThere = present != 0 && !isExpired(present);
                if (!isWanted.test(isThere ? present : 0) || !isThere) {
                    return false;
                }
                leaving.leaving(present, hash);
                index.remove(index.place(present, hash), hash);
            } finally {
                stripe.unlock();
            }
            live.dropped(present);
            old.accept(present);
            return true;
        } finally {
            pins.unpin(pin);
            space.maintenance.changed();
        }
    }

    /// Calls a function with the entry of a key, also if it has expired, while no other thread changes it.
    ///
    /// @param use is called with its address, or 0 if there is none
    <R extends @Nullable Object> R locked(byte[] key, long hash, LongFunction<R> use) {
        int pin = pins.pin();
        ReentrantLock stripe = index.lock(hash);
        stripe.lock();
        try {
            return use.apply(index.present(key, hash));
        } finally {
            stripe.unlock();
            pins.unpin(pin);
        }
    }

    /// Removes an entry that [#locked] has found.
    void removeLocked(long entry, long hash) {
        leaving.leaving(entry, hash);
        index.remove(index.place(entry, hash), hash);
        live.dropped(entry);
        space.maintenance.changed();
    }

    // --- Memory ------------------------------------------------------------------------------------

    /// Frees segments in advance, and what has expired.
    void maintain() {
        Stack.claim();
        space.maintain();
    }

    void clear() {
        Stack.claim();
        space.clear();
    }

    /// Changes the number of segments that may be in use, and frees others.
    ///
    /// @return whether no more are in use
    boolean limit(int count) {
        Stack.claim();
        return space.limit(count);
    }

    /// Ends all accesses; memory may be released then, also if saving has failed.
    void close() {
        Stack.claim();
        space.close(pins, () -> {
            boolean isWritten = evictor.save();
            index.save();
            segments.save();
            if (isWritten) {
                segments.manifest.close(segments.pool);
            }
        });
    }
}
