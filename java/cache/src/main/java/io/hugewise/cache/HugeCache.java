package io.hugewise.cache;

import io.hugewise.memory.Coverage;
import io.hugewise.memory.Obtained;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Function;
import java.util.function.LongConsumer;
import java.util.function.LongPredicate;
import org.jspecify.annotations.Nullable;

/// A cache outside of the Java heap, on huge pages where the kernel gives them.
///
/// ```java
/// try (var cache = HugeCache.builder(Serializers.strings(), Serializers.bytes()).maximumBytes(1L << 30).build()) {
///     byte[] page = cache.get("/index.html", path -> render(path));
/// }
/// ```
///
/// All memory of entries and of their index is within the limit in bytes, which is never exceeded. Entries that are
/// used rarely are evicted, in the order of W-TinyLFU. Keys and values are not null.
///
/// Any thread may use the cache. Reads take no lock. Functions that are passed to it must not use the same cache,
/// except for a loader.
///
/// @param <K> type of keys
/// @param <V> type of values
public final class HugeCache<K, V> implements AutoCloseable {
    private final CacheMemory memory;
    private final Store store;
    private final @Nullable HeapTier<V> heap;
    private final Serializer<K> keys;
    private final Serializer<V> values;
    private final HugeCacheBuilder<K, V> options;
    private final ConcurrentMap<K, Flight<V>> flights = new ConcurrentHashMap<>();
    private final LongAdder hitBytes = new LongAdder();
    private final LongAdder missBytes = new LongAdder();

    HugeCache(HugeCacheBuilder<K, V> options, CacheMemory memory) {
        this.options = options;
        this.memory = memory;
        this.keys = options.keys;
        this.values = options.values;
        HeapTable<V> table = options.heapWeight == 0 ? null : new HeapTable<>(options.heapWeight, options.weigher);
        LongConsumer leaving = table == null ? _ -> {} : table::remove;
        this.store = new Store(memory.pool(), memory.manifest(), options.canExpire(), options.nanos, this::removed, leaving);
        this.heap = table == null ? null : new HeapTier<>(table, store, options.accessNanos, hitBytes);
    }

    /// Begins to describe a cache.
    ///
    /// @param keys writes keys; the bytes of equal keys must be equal
    /// @param values writes values
    /// @param <K> type of keys
    /// @param <V> type of values
    /// @return a description to be completed
    public static <K, V> HugeCacheBuilder<K, V> builder(Serializer<K> keys, Serializer<V> values) {
        return new HugeCacheBuilder<>(keys, values);
    }

    // --- Reading -----------------------------------------------------------------------------------

    /// Returns a value.
    ///
    /// @param key its key
    /// @return the value; null if it is not in the cache
    public @Nullable V getIfPresent(K key) {
        byte[] bytes = bytes(key);
        long hash = store.hash(bytes);
        V value = heap == null ? null : heap.get(bytes, hash);
        return value != null ? value : store.read(bytes, hash, entry -> read(entry, bytes, hash));
    }

    private V read(long entry, byte[] key, long hash) {
        V value = values.read(used(entry));
        if (heap != null) {
            heap.wasRead(entry, key, hash, value);
        }
        return value;
    }

    /// Returns what a function reads from the bytes of a value, without a copy unless the value is larger than a
    /// segment. The memory stays as it is until the function returns, which must not take long: other threads may wait
    /// for memory meanwhile.
    ///
    /// @param key the key
    /// @param reader reads the value; the memory must not be used later, or written to
    /// @param <R> type of the result
    /// @return the result; empty if there is none, or the value is not in the cache
    public <R> Optional<R> read(K key, Function<MemorySegment, ? extends @Nullable R> reader) {
        byte[] bytes = bytes(key);
        return Optional.ofNullable(store.<R>read(bytes, store.hash(bytes), entry -> reader.apply(used(entry).asReadOnly())));
    }

    /// The value of an entry, whose use is noted.
    private MemorySegment used(long entry) {
        if (options.accessNanos > 0) {
            store.setExpiry(entry, store.clock.after(options.accessNanos));
        }
        MemorySegment value = store.value(entry);
        hitBytes.add(value.byteSize());
        return value;
    }

    /// Returns a value; if it is not in the cache, loads and adds it. Threads that want the same key wait for the one
    /// that loads. If the key is removed during the load, the loaded value is returned and not added.
    ///
    /// @param key its key
    /// @param loader returns the value, or null if there is none
    /// @return the value; null if the loader returned null
    public @Nullable V get(K key, Function<? super K, ? extends @Nullable V> loader) {
        V present = getIfPresent(key);
        if (present != null) {
            return present;
        }
        var own = new Flight<V>();
        Flight<V> other = flights.putIfAbsent(key, own);
        if (other != null) {
            return await(other);
        }
        try {
            V value = load(key, loader, own);
            own.complete(value);
            return value;
        } catch (Throwable error) {
            own.completeExceptionally(error);
            throw error;
        } finally {
            flights.remove(key, own);
        }
    }

    private @Nullable V load(K key, Function<? super K, ? extends @Nullable V> loader, Flight<V> flight) {
        // Another load may have ended between the miss and this one.
        V present = peek(key);
        V value = present == null ? loader.apply(key) : null;
        if (value == null) {
            return present;
        }
        missBytes.add(values.size(value));
        V newer = putIfAbsent(key, value);
        if (flight.isDiscarded) {
            invalidate(key);
        }
        return newer == null ? value : newer;
    }

    private static <V> @Nullable V await(Flight<V> flight) {
        try {
            return flight.join();
        } catch (CompletionException error) {
            if (error.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            if (error.getCause() instanceof Error cause) {
                throw cause;
            }
            throw error;
        }
    }

    @Nullable V peek(K key) {
        byte[] bytes = bytes(key);
        return store.peek(bytes, store.hash(bytes), entry -> values.read(store.value(entry)));
    }

    /// Returns those of some values that are in the cache.
    ///
    /// @param wanted their keys
    /// @return the values by key
    public Map<K, V> getAllPresent(Iterable<? extends K> wanted) {
        Map<K, V> found = new LinkedHashMap<>();
        for (K key : wanted) {
            V value = getIfPresent(key);
            if (value != null) {
                found.put(key, value);
            }
        }
        return found;
    }

    // --- Writing -----------------------------------------------------------------------------------

    /// Adds or replaces a value.
    ///
    /// @param key its key
    /// @param value the value
    public void put(K key, V value) {
        put(key, value, expiry(), _ -> true, replaced());
    }

    /// Adds or replaces a value that expires.
    ///
    /// @param key its key
    /// @param value the value
    /// @param duration time until it expires, unless another time is set by a use; rounded down to 32 ms
    /// @throws IllegalStateException if the cache was built without expiry
    public void put(K key, V value, Duration duration) {
        if (!options.canExpire()) {
            throw new IllegalStateException("entries cannot expire: build the cache with expireAfterWrite, expireAfterAccess or variableExpiry");
        }
        put(key, value, store.clock.after(Clock.nanos(duration)), _ -> true, replaced());
    }

    /// Adds a value if there is none for its key.
    ///
    /// @param key its key
    /// @param value the value
    /// @return the present value; null if there was none
    public @Nullable V putIfAbsent(K key, V value) {
        while (!put(key, value, expiry(), present -> present == 0, replaced())) {
            V present = peek(key);
            if (present != null) {
                return present;
            }
        }
        return null;
    }

    private int expiry() {
        long nanos = options.accessNanos > 0 ? options.accessNanos : options.writeNanos;
        return nanos > 0 ? store.clock.after(nanos) : Clock.NEVER;
    }

    boolean put(K key, V value, LongPredicate isWanted, LongConsumer old) {
        return put(key, value, expiry(), isWanted, old);
    }

    private boolean put(K key, V value, int expiry, LongPredicate isWanted, LongConsumer old) {
        byte[] bytes = bytes(key);
        return store.put(bytes, store.hash(bytes), values.size(value), expiry, isWanted, to -> values.write(value, to), old);
    }

    /// Removes a value, if it is there.
    ///
    /// @param key its key
    public void invalidate(K key) {
        remove(key, _ -> true, _ -> {});
    }

    boolean remove(K key, LongPredicate isWanted, LongConsumer old) {
        Flight<V> flight = flights.get(key);
        if (flight != null) {
            flight.isDiscarded = true;
        }
        byte[] bytes = bytes(key);
        return store.remove(bytes, store.hash(bytes), isWanted, entry -> {
            old.accept(entry);
            removed(entry, RemovalCause.EXPLICIT);
        });
    }

    /// Removes all values.
    public void invalidateAll() {
        flights.values().forEach(flight -> flight.isDiscarded = true);
        store.clear();
    }

    // --- Entries -----------------------------------------------------------------------------------

    private byte[] bytes(K key) {
        byte[] bytes = new byte[keys.size(key)];
        keys.write(key, MemorySegment.ofArray(bytes));
        return bytes;
    }

    K key(long entry) {
        return keys.read(store.entries.keyMemory(entry));
    }

    V value(long entry) {
        return values.read(store.value(entry));
    }

    /// Whether the value of an entry has the same bytes as another one.
    boolean isValue(long entry, @Nullable Object other) {
        @SuppressWarnings("unchecked")
        V value = (V) Objects.requireNonNull(other);
        MemorySegment bytes = MemorySegment.ofArray(new byte[values.size(value)]);
        values.write(value, bytes);
        return store.value(entry).mismatch(bytes) == -1;
    }

    LongConsumer replaced() {
        return entry -> removed(entry, store.isExpired(entry) ? RemovalCause.EXPIRED : RemovalCause.REPLACED);
    }

    private void removed(long entry, RemovalCause cause) {
        RemovalListener<? super K, ? super V> listener = options.listener;
        if (listener != null) {
            K key = key(entry);
            V value = value(entry);
            options.executor.execute(() -> listener.onRemoval(key, value, cause));
        }
    }

    Store store() {
        return store;
    }

    /// {@return a view of the entries; its iterators see each entry that stays once, and others perhaps. Its reads do
    /// not count as uses, nor in statistics. A function of `compute` and others is called again if another thread
    /// changes the entry meanwhile}
    public ConcurrentMap<K, V> asMap() {
        return new MapView<>(this);
    }

    // --- The cache itself --------------------------------------------------------------------------

    /// {@return the number of entries; those that have expired may be included}
    public long estimatedSize() {
        return store.index.entries();
    }

    /// {@return the limit in bytes of all entries and of their index}
    public long maximumBytes() {
        return (long) store.segments.limit() * store.segments.size;
    }

    /// Changes the limit, and evicts entries if there are more.
    ///
    /// @param bytes the limit; it is rounded down to segments
    /// @return whether no more are in use; false if a read that takes long keeps memory
    /// @throws IllegalArgumentException if it exceeds the memory that was reserved, or is less than twice the index
    public boolean setMaximumBytes(long bytes) {
        long most = (long) store.segments.pool.count() * store.segments.size;
        long least = Math.max(8L * store.segments.size, 2 * indexBytes());
        if (bytes < least || bytes > most) {
            throw new IllegalArgumentException("the limit of this cache can be from " + least + " to " + most + " bytes, not " + bytes);
        }
        return store.limit((int) (bytes / store.segments.size));
    }

    /// {@return the bytes in use, at most [#maximumBytes]; memory for entries is taken in segments}
    public long usedBytes() {
        return (long) store.segments.used() * store.segments.size;
    }

    /// {@return the bytes in use by the index and the sketch of frequencies}
    public long indexBytes() {
        return store.index.bytes() + store.evictor.sketch.bytes();
    }

    /// {@return counts since the cache was created}
    public CacheStats stats() {
        Evictor evictor = store.evictor;
        return new CacheStats(store.hits.sum(), store.misses.sum(), hitBytes.sum(), missBytes.sum(), store.live.evicted.sum(),
                store.live.evictedBytes.sum(), store.rejected.sum(), evictor.inserted.sum(), evictor.moved());
    }

    /// {@return counts of the values on the heap; zeros if the cache has no tier there}
    public HeapStats heapStats() {
        return heap == null ? new HeapStats(0, 0, 0) : heap.stats();
    }

    /// {@return the backing of the memory, and why better ones failed}
    public Obtained backing() {
        return memory.backing();
    }

    /// {@return the page sizes of the memory, as the kernel reports them}
    public Coverage coverage() {
        return memory.coverage().get();
    }

    /// Frees memory in advance, and that of expired entries, as a thread of the cache does ten times in a second.
    public void cleanUp() {
        store.maintain();
    }

    /// {@return whether it has entries of an earlier process, and if not, why}
    public Restart restart() {
        return memory.restart();
    }

    /// Releases the memory, when reads that are under way have ended; a file keeps it. Later use throws an exception.
    /// A function that reads a value must not call it.
    @Override
    public void close() {
        if (store.close()) {
            memory.close();
        }
    }

    @Override
    public String toString() {
        return "cache of " + maximumBytes() + " bytes on " + Objects.toString(backing());
    }

    /// A load that other threads wait for.
    private static final class Flight<V> extends java.util.concurrent.CompletableFuture<@Nullable V> {
        /// The key was removed since the load began.
        volatile boolean isDiscarded;
    }
}
