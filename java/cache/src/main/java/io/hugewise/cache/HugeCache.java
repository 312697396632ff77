package io.hugewise.cache;

import io.hugewise.memory.Coverage;
import io.hugewise.memory.Obtained;
import io.hugewise.memory.internal.Collected;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentMap;
import java.util.function.Function;
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
/// Any thread may use the cache. Reads take no lock. Functions that are passed to it may use the same cache. Threads wait
/// for a loader or a function of `compute` only if they need the same key, and may be interrupted then: a
/// [java.util.concurrent.CompletionException] is thrown. If threads would wait for each other, or a function for itself, an
/// [IllegalStateException] is thrown.
///
/// @param <K> type of keys
/// @param <V> type of values
public final class HugeCache<K, V> implements AutoCloseable {
    private final CacheMemory memory;
    private final HugeCacheBuilder<K, V> options;
    private final ObjectStore<K, V> objects;
    private final Store store;
    private final Reads<K, V> reads;
    private final Loads<K, V> loads;
    private final Resources resources;
    private final Cleaner.Cleanable reported;
    private final Cleaner.Cleanable dropped;

    HugeCache(HugeCacheBuilder<K, V> options, CacheMemory memory) {
        this.options = options;
        this.memory = memory;
        HeapTable<V> table = options.heapWeight == 0 ? null : new HeapTable<>(options.heapWeight, options.weigher);
        objects = new ObjectStore<>(options, memory, table == null ? _ -> {} : table::remove);
        store = objects.store;
        reads = new Reads<>(objects, table);
        loads = new Loads<>(this, objects, options.executor);
        resources = new Resources(objects, memory, options.isRehearsal);
        reported = CacheEvents.opened(this);
        dropped = Collected.register(this, resources::drop);
        store.space.maintenance.begin();
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
        try {
            return getIfPresent(key, objects.keyBytes(key));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    @Nullable V getIfPresent(K key, KeyBytes bytes) {
        V value = reads.value(key, bytes);
        CacheLoader<? super K, V> loader = options.loader;
        if (value != null && loader != null && options.refreshNanos > 0) {
            refreshIfOld(key, bytes, loader);
        }
        return value;
    }

    /// Returns what a function reads from a copy of the bytes of a value, which it need not deserialise. No thread waits for
    /// the function.
    ///
    /// @param key the key
    /// @param reader reads the value from memory that cannot be written
    /// @param <R> type of the result
    /// @return the result; empty if there is none, or the value is not in the cache
    public <R> Optional<R> read(K key, Function<MemorySegment, ? extends @Nullable R> reader) {
        Objects.requireNonNull(reader, "reader");
        try {
            return reads.view(objects.keyBytes(key), reader);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private void refreshIfOld(K key, KeyBytes bytes, CacheLoader<? super K, V> loader) {
        Integer written = objects.peek(bytes, objects.codec::written);
        if (written != null && store.clock.since(written) >= options.refreshNanos) {
            loads.refreshIfPossible(key, bytes, loader);
        }
    }

    /// Returns a value; if it is not in the cache, loads and adds it. Threads that want the same key wait for the one
    /// that loads. If the key is written or removed during the load, the loaded value is returned and not added.
    ///
    /// @param key its key
    /// @param loader returns the value, or null if there is none
    /// @return the value; null if the loader returned null
    public @Nullable V get(K key, Function<? super K, ? extends @Nullable V> loader) {
        Objects.requireNonNull(loader, "loader");
        try {
            KeyBytes bytes = objects.keyBytes(key);
            V present = getIfPresent(key, bytes);
            return present == null ? loads.get(key, bytes, loader) : present;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /// Returns a value; if it is not in the cache, the loader of the cache loads it.
    ///
    /// @param key its key
    /// @return the value; null if the loader returned null
    /// @throws IllegalStateException if the cache was built without a loader
    public @Nullable V get(K key) {
        CacheLoader<? super K, V> loader = loader();
        Function<K, @Nullable V> load = wanted -> Loads.load(loader, wanted);
        return get(key, load);
    }

    /// Returns values; those that are not in the cache are loaded together and added. Threads that want the same key
    /// wait for the one that loads it.
    ///
    /// @param wanted their keys
    /// @param loader returns the values of some keys; without those that have none; others may be contained and are
    ///     added, too, unless the cache has a writer
    /// @return the values by key, in the order of `wanted`; without those that have none
    public Map<K, V> getAll(Iterable<? extends K> wanted, Function<? super Set<? extends K>, ? extends Map<? extends K, ? extends V>> loader) {
        return loads.getAll(wanted, Objects.requireNonNull(loader, "loader"));
    }

    /// Returns values; those that are not in the cache are loaded by the loader of the cache: together if it has
    /// [CacheLoader#loadAll].
    ///
    /// @param wanted their keys
    /// @return the values by key, in the order of `wanted`; without those that have none
    /// @throws IllegalStateException if the cache was built without a loader
    public Map<K, V> getAll(Iterable<? extends K> wanted) {
        return loads.getAllByLoader(wanted, loader());
    }

    /// Loads a value again by the executor, or for the first time. Reads return the old value until then. The new one is
    /// not added if the key is written or removed meanwhile.
    ///
    /// @param key its key
    /// @return the loaded value, when its load has ended; that of a load that is under way already
    /// @throws IllegalStateException if the cache was built without a loader
    public CompletableFuture<@Nullable V> refresh(K key) {
        return loads.refresh(key, objects.keyBytes(key), loader());
    }

    private CacheLoader<? super K, V> loader() {
        CacheLoader<? super K, V> loader = options.loader;
        if (loader == null) {
            throw new IllegalStateException("the cache was built without a loader");
        }
        return loader;
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
        try {
            objects.put(key, value, null, ObjectStore.ALWAYS, objects.replaced);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /// Returns whether an entry is small enough for the cache. [#put] of a larger one removes the entry of its key, and
    /// counts a rejection.
    ///
    /// @param key its key
    /// @param value its value
    /// @return whether it can be put: if its value needs half of the limit at most, and its key is shorter than a segment
    public boolean fits(K key, V value) {
        return store.fits(objects.codec.bytes(key).length, Math.addExact(objects.codec.header.size(), objects.codec.size(value)));
    }

    /// Adds or replaces values, one after the other.
    ///
    /// @param values the values by key
    public void putAll(Map<? extends K, ? extends V> values) {
        values.forEach(this::put);
    }

    /// Adds or replaces a value that expires.
    ///
    /// @param key its key
    /// @param value the value
    /// @param duration time until it expires, unless another time is set by a use; rounded down to 32 ms
    /// @throws IllegalStateException if the cache was built without expiry
    public void put(K key, V value, Duration duration) {
        Objects.requireNonNull(duration, "duration");
        objects.put(key, value, objects.expiryAfter(duration), ObjectStore.ALWAYS, objects.replaced);
    }

    /// Adds a value if there is none for its key.
    ///
    /// @param key its key
    /// @param value the value
    /// @return the present value; null if there was none
    public @Nullable V putIfAbsent(K key, V value) {
        return objects.putIfAbsent(key, value, null);
    }

    /// Removes a value, if it is there.
    ///
    /// @param key its key
    public void invalidate(K key) {
        objects.remove(key, ObjectStore.ALWAYS, _ -> {});
    }

    /// Removes values, if they are there.
    ///
    /// @param unwanted their keys
    public void invalidateAll(Iterable<? extends K> unwanted) {
        unwanted.forEach(this::invalidate);
    }

    /// Removes all values.
    public void invalidateAll() {
        objects.clear();
    }

    /// {@return a view of the entries; its iterators see each entry that stays once, and others perhaps. Its reads do
    /// not count as uses, nor in statistics. A function of `compute` and others is called once; other writes of its key
    /// wait for it}
    public ConcurrentMap<K, V> asMap() {
        return new MapView<>(this, objects);
    }

    /// {@return what the options of the cache allow to read and to change}
    public Policy<K, V> policy() {
        return new Policy<>(this, objects, options.refreshNanos);
    }

    // --- The cache itself --------------------------------------------------------------------------

    Store store() {
        return store;
    }

    /// {@return the number of entries; those that have expired may be included}
    public long estimatedSize() {
        return Math.max(0, objects.count());
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
        boolean isMet = store.limit((int) (bytes / store.segments.size));
        objects.notifications.deliver();
        return isMet;
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
        LiveEntries live = store.live;
        return new CacheStats(store.hits.sum(), store.misses.sum(), objects.puts.sum(), reads.hitBytes.sum(), loads.values.bytes.sum(),
                live.evicted.sum(), live.evictedBytes.sum(), store.rejected.sum(), evictor.compaction.inserted.sum(), evictor.compaction.moved(),
                loads.loaded.sum(), loads.failed.sum(), loads.nanos.sum(), health());
    }

    /// {@return what has failed in the background since the cache was created}
    public CacheHealth health() {
        WriteBehind<K, V> behind = objects.behind;
        return new CacheHealth(store.space.failures.count(), behind == null ? 0 : behind.thread.failures.count(), objects.notifications.failures.count(),
                loads.refreshFailures.count(), behind == null ? 0 : behind.refusals.refused.get(), behind == null ? 0 : behind.refusals.size(),
                behind == null ? 0 : behind.unwritten());
    }

    /// {@return counts of the values on the heap; zeros if the cache has no tier there}
    public HeapStats heapStats() {
        HeapTier<V> heap = reads.heap;
        return heap == null ? new HeapStats(0, 0, 0) : heap.stats();
    }

    /// Estimates how often reads would miss with another limit, and the same requests as before; later ones count more.
    /// The estimate is that of a cache that evicts the least recently used entry.
    ///
    /// @param bytes the limit, at most twice the memory that was reserved
    /// @return the share of reads that would miss, from 0 to 1; empty if there were too few reads, or the cache was built
    ///     without [HugeCacheBuilder#estimateMissRatios]
    public OptionalDouble missRatio(long bytes) {
        MissRatioEstimate estimate = objects.estimate;
        return estimate == null ? OptionalDouble.empty() : estimate.missRatio(bytes);
    }

    /// {@return the name of the memory's arena, `cache` unless [HugeCacheBuilder#memory] has set it; that of its file}
    public String name() {
        return memory.name();
    }

    /// {@return the backing of the memory, and why better ones failed}
    public Obtained backing() {
        return memory.backing();
    }

    /// {@return the page sizes of the memory, as the kernel reports them}
    public Coverage coverage() {
        return memory.coverage().get();
    }

    /// Frees memory in advance, and that of expired entries, as a thread does for all caches within a second after a change.
    public void cleanUp() {
        store.maintain();
        objects.notifications.deliver();
    }

    /// {@return whether it has entries of an earlier process, and if not, why}
    public Restart restart() {
        return memory.restart();
    }

    /// Writes the changes that the store does not have yet, with write-back; does nothing without it.
    ///
    /// @throws UnwrittenException if the store has failed for the patience; the changes stay, and are tried further
    public void flush() {
        objects.flush();
    }

    /// Writes the changes that the store does not have yet, then releases the memory, when reads that are under way have
    /// ended; a file keeps it. Later use throws an exception; closing again does nothing. A cache that is collected without
    /// it is closed then, with a warning in the log.
    ///
    /// @throws UnwrittenException if the store has failed for the patience; the cache stays open then
    @Override
    public void close() {
        resources.close();
        reported.clean();
        dropped.clean();
    }

    /// Does what follows when it was collected, and closes it.
    void drop() {
        resources.drop();
        close();
    }

    @Override
    public String toString() {
        return "cache of " + maximumBytes() + " bytes on " + Objects.toString(backing());
    }
}
