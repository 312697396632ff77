package io.hugewise.cache;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeOptions;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.function.LongSupplier;
import java.util.function.ToLongFunction;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/// Describes a cache to be built.
///
/// @param <K> type of keys
/// @param <V> type of values
public final class HugeCacheBuilder<K, V> {
    private static final long LEAST = 4 << 20;
    private static final long LARGEST = 256L << 30;
    private static final long SMALLEST_SEGMENT = 64 << 10;
    private static final long LARGEST_SEGMENT = 1 << 20;
    private static final long SEGMENTS = 256;

    final Serializer<K> keys;
    final Serializer<V> values;
    long writeNanos;
    long accessNanos;
    long refreshNanos;
    boolean isVariable;
    boolean isEstimating;
    @Nullable Expiry<? super K, ? super V> expiry;
    @Nullable CacheLoader<? super K, V> loader;
    @Nullable CacheWriter<K, V> writeThrough;
    @Nullable WriteBack<K, V> writeBack;
    @Nullable RemovalListener<? super K, ? super V> listener;
    Executor executor = ForkJoinPool.commonPool();
    LongSupplier nanos = Clock.SYSTEM;
    /// Whether the cache is one of [Rehearsal].
    boolean isRehearsal;
    long heapWeight;
    ToLongFunction<? super V> weigher = _ -> 1;
    private long maximumBytes;
    private UnaryOperator<HugeOptions> memory = UnaryOperator.identity();
    private @Nullable Path file;

    HugeCacheBuilder(Serializer<K> keys, Serializer<V> values) {
        this.keys = Objects.requireNonNull(keys, "keys");
        this.values = Objects.requireNonNull(values, "values");
    }

    /// Sets the limit of all memory outside of the heap: entries, index, and what is kept free. This memory is reserved.
    ///
    /// @param bytes from 4 MiB to 256 GiB; rounded down to segments of 64 KiB to 1 MiB
    /// @return this
    public HugeCacheBuilder<K, V> maximumBytes(long bytes) {
        if (bytes < LEAST || bytes > LARGEST) {
            throw new IllegalArgumentException("a cache has from 4MiB to 256GiB, not " + bytes + " bytes");
        }
        maximumBytes = bytes;
        return this;
    }

    /// Lets entries expire after they were added or replaced.
    ///
    /// @param duration time until then; rounded down to 32 ms
    /// @return this
    public HugeCacheBuilder<K, V> expireAfterWrite(Duration duration) {
        writeNanos = Clock.nanos(duration);
        return this;
    }

    /// Lets entries expire after they were added, replaced or read. With [#expireAfterWrite], the earlier time counts.
    ///
    /// @param duration time until then; rounded down to 32 ms
    /// @return this
    public HugeCacheBuilder<K, V> expireAfterAccess(Duration duration) {
        accessNanos = Clock.nanos(duration);
        return this;
    }

    /// Lets entries expire at times that are set with [HugeCache#put(Object, Object, Duration)]; others never expire.
    ///
    /// @return this
    public HugeCacheBuilder<K, V> variableExpiry() {
        isVariable = true;
        return this;
    }

    /// Lets each entry expire at a time that a function determines. Other times can be set with
    /// [HugeCache#put(Object, Object, Duration)].
    ///
    /// @param times determines them
    /// @return this
    public HugeCacheBuilder<K, V> expireAfter(Expiry<? super K, ? super V> times) {
        expiry = Objects.requireNonNull(times, "times");
        isVariable = true;
        return this;
    }

    /// Sets what loads values that are missing, for [HugeCache#get(Object)], or old.
    ///
    /// @param loads loads them
    /// @return this
    public HugeCacheBuilder<K, V> loader(CacheLoader<? super K, V> loads) {
        loader = Objects.requireNonNull(loads, "loads");
        return this;
    }

    /// Lets the loader load a value again when it is read so long after it was written. The old value is returned until
    /// then.
    ///
    /// @param duration time from the write on
    /// @return this
    public HugeCacheBuilder<K, V> refreshAfterWrite(Duration duration) {
        refreshNanos = Clock.nanos(duration);
        return this;
    }

    /// Lets each change be written to a store before it is made in the cache. Removals are written, too, except those of
    /// [HugeCache#invalidateAll()]. If the store throws an exception, the entry is removed from the cache.
    ///
    /// @param writer writes to the store
    /// @return this
    public HugeCacheBuilder<K, V> writeThrough(CacheWriter<K, V> writer) {
        writeThrough = Objects.requireNonNull(writer, "writer");
        return this;
    }

    /// Lets changes be written to a store later, in batches. Removals are written, too, except those of
    /// [HugeCache#invalidateAll()]. A change is never dropped: an entry that is evicted, expires or finds no memory is
    /// written first. Missing values should be loaded by a loader, which waits for unwritten changes of its key.
    ///
    /// @param changes how they are written
    /// @return this
    public HugeCacheBuilder<K, V> writeBack(WriteBack<K, V> changes) {
        writeBack = Objects.requireNonNull(changes, "changes");
        return this;
    }

    /// Lets [HugeCache#missRatio] estimate how often reads would miss with another limit, from a sample of at most 8192
    /// keys on the heap.
    ///
    /// @return this
    public HugeCacheBuilder<K, V> estimateMissRatios() {
        isEstimating = true;
        return this;
    }

    boolean canExpire() {
        return isVariable || writeBack != null || writeNanos > 0 || accessNanos > 0;
    }

    ValueHeader header() {
        return new ValueHeader(writeBack != null, refreshNanos > 0 || Expiration.needsWriteTime(this));
    }

    /// Keeps values that are read often on the heap, too, as objects: a read of those deserialises nothing. Callers get
    /// the same object, and must not change it.
    ///
    /// @param count largest number of values on the heap
    /// @return this
    public HugeCacheBuilder<K, V> heapEntries(long count) {
        return heapWeight(count, _ -> 1);
    }

    /// Keeps values that are read often on the heap, as [#heapEntries] does.
    ///
    /// @param maximum largest sum of the weights of values on the heap
    /// @param weight returns the weight of a value, such as its bytes on the heap; not negative
    /// @return this
    public HugeCacheBuilder<K, V> heapWeight(long maximum, ToLongFunction<? super V> weight) {
        if (maximum <= 0) {
            throw new IllegalArgumentException("the heap has at least one value, not " + maximum);
        }
        heapWeight = maximum;
        weigher = Objects.requireNonNull(weight, "weight");
        return this;
    }

    /// Sets what is called after an entry was removed. The first exception of the listener or of its executor is logged;
    /// none reaches the caller.
    ///
    /// @param called the listener
    /// @return this
    public HugeCacheBuilder<K, V> removalListener(RemovalListener<? super K, ? super V> called) {
        listener = Objects.requireNonNull(called, "called");
        return this;
    }

    /// Sets the executor that calls the listener and refreshes values; by default the common pool.
    ///
    /// @param caller the executor
    /// @return this
    public HugeCacheBuilder<K, V> executor(Executor caller) {
        executor = Objects.requireNonNull(caller, "caller");
        return this;
    }

    /// Sets the clock, for tests.
    ///
    /// @param clock returns a time in nanoseconds, as [System#nanoTime] does
    /// @return this
    public HugeCacheBuilder<K, V> ticker(LongSupplier clock) {
        nanos = Objects.requireNonNull(clock, "clock");
        return this;
    }

    /// Changes how memory is reserved; by default `hugetlb`, else `thp`, else `base`.
    ///
    /// @param change completes the options, for example `options -> options.only(Backing.hugetlb())`
    /// @return this
    public HugeCacheBuilder<K, V> memory(UnaryOperator<HugeOptions> change) {
        memory = Objects.requireNonNull(change, "change");
        return this;
    }

    /// Keeps the memory in a file, from which the next process goes on with all entries. It must be on hugetlbfs or
    /// tmpfs; see [io.hugewise.memory.HugeFile]. The file has [#maximumBytes] and one page more.
    ///
    /// After [HugeCache#close], the next process has the entries at once. If a process ended without it, the next one
    /// checks them, and has all but those that were being written. [HugeCache#restart] says which it was. A file that
    /// does not match, because the limit, the formats of the serializers, expiry or the page size are others, is
    /// emptied. A file that is not a cache's is refused. One process at a time can have it open. Times until expiry go
    /// on between two processes.
    ///
    /// @param path the file, which is created if it does not exist
    /// @return this
    public HugeCacheBuilder<K, V> file(Path path) {
        Objects.requireNonNull(path, "path");
        if (keys.format().isEmpty() || values.format().isEmpty()) {
            throw new IllegalArgumentException("the serializers of a cache in a file need a format: override Serializer.format()");
        }
        file = path;
        return this;
    }

    /// Reserves the memory, or attaches the file.
    ///
    /// @return the cache
    /// @throws IllegalStateException if no limit is set, entries would expire both by [#expireAfter] and after a write or
    ///     an access, or values would be refreshed without a loader
    /// @throws io.hugewise.memory.HugeMemoryException if no memory is available
    /// @throws UncheckedIOException if the file cannot be used, or is open already
    public HugeCache<K, V> build() {
        if (maximumBytes == 0) {
            throw new IllegalStateException("a cache needs maximumBytes");
        }
        if (expiry != null && (writeNanos > 0 || accessNanos > 0)) {
            throw new IllegalStateException("entries expire either by expireAfter or by expireAfterWrite and expireAfterAccess");
        }
        if (writeThrough != null && writeBack != null) {
            throw new IllegalStateException("changes are written either through or back");
        }
        if (refreshNanos > 0 && loader == null) {
            throw new IllegalStateException("refreshAfterWrite needs a loader");
        }
        if (heapWeight > 0 && (expiry != null || Expiration.needsWriteTime(this))) {
            throw new IllegalStateException("values on the heap expire by expireAfterWrite or by expireAfterAccess alone, or at times that are set");
        }
        if (file != null && writeBack != null) {
            throw new IllegalStateException("a file does not keep which changes the store has: use writeThrough");
        }
        Rehearsal.before(file);
        long segmentSize = Math.clamp(Long.highestOneBit(maximumBytes / SEGMENTS), SMALLEST_SEGMENT, LARGEST_SEGMENT);
        long size = maximumBytes / segmentSize * segmentSize;
        CacheMemory reserved = file == null ? reserve(size, segmentSize) : attach(file, size, (int) segmentSize);
        try {
            return new HugeCache<>(this, reserved);
        } catch (Throwable error) {
            reserved.close();
            throw error;
        }
    }

    private CacheMemory reserve(long size, long segmentSize) {
        var options = HugeOptions.reserve(size).prefer(Backing.hugetlb(), Backing.thp(), Backing.base()).named("cache");
        return CacheMemory.reserve(memory.apply(options), segmentSize, nanos);
    }

    private CacheMemory attach(Path path, long size, int segmentSize) {
        String settings = "keys " + keys.format() + ", values " + values.format() + (canExpire() ? ", with expiry" : "")
                + (header().hasTime() ? ", with times of writes" : "");
        try {
            return CacheFile.attach(path, size, segmentSize, settings, nanos);
        } catch (IOException error) {
            throw new UncheckedIOException(error.getMessage(), error);
        }
    }
}
