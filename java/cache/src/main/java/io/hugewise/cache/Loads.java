package io.hugewise.cache;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Function;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/// Loads values that are missing or old, each by one thread at a time. A value is not added if its key was written or
/// removed since its load began.
final class Loads<K, V> {
    private static final int RETRIES = 1024;
    private static final long RETRY_NANOS = TimeUnit.SECONDS.toNanos(1);

    final LongAdder loaded = new LongAdder();
    final LongAdder failed = new LongAdder();
    final LongAdder nanos = new LongAdder();
    final Failures refreshFailures = new Failures();
    /// When keys may be loaded again whose last load failed, by bits of their hashes.
    private final AtomicLongArray retries = new AtomicLongArray(RETRIES);
    private final HugeCache<K, V> cache;
    private final ObjectStore<K, V> objects;
    final LoadedValues<K, V> values;
    private final Pending<V> pending;
    private final Executor executor;

    Loads(HugeCache<K, V> cache, ObjectStore<K, V> objects, Executor executor) {
        this.cache = cache;
        this.objects = objects;
        this.values = new LoadedValues<>(objects);
        this.pending = objects.pending;
        this.executor = executor;
    }

    // --- One key -----------------------------------------------------------------------------------

    @Nullable V get(K key, KeyBytes bytes, Function<? super K, ? extends @Nullable V> loader) {
        var own = new Pending.Load<V>(bytes);
        own.tryOwn();
        try {
            Pending.Load<V> other = pending.begin(own);
            // The executor may never begin with one that it has.
            if (other != null && !other.tryOwn()) {
                return await(other);
            }
            own = other == null ? own : other;
            // Another load may have ended between the miss and this one.
            V present = values.beforeLoad(bytes);
            V value = present == null ? timed(() -> loader.apply(key)) : null;
            V result = value == null ? present : added(key, value, own);
            pending.end(own, result);
            return result;
        } catch (Throwable error) {
            pending.fail(own, error);
            throw error;
        }
    }

    private V added(K key, V value, Pending.Load<V> load) {
        V newer = values.add(key, value, load);
        return newer == null ? value : newer;
    }

    private <R extends @Nullable Object> R timed(Supplier<R> load) {
        long start = System.nanoTime();
        boolean isLoaded = false;
        try {
            R result = load.get();
            isLoaded = result != null;
            return result;
        } finally {
            nanos.add(System.nanoTime() - start);
            (isLoaded ? loaded : failed).increment();
        }
    }

    private static <V> @Nullable V await(Pending.Load<V> load) {
        try {
            return load.await();
        } catch (CompletionException error) {
            throw unwrapped(error);
        }
    }

    /// The exception of a loader, as its caller sees it.
    private static RuntimeException unwrapped(CompletionException error) {
        if (error.getCause() instanceof RuntimeException cause) {
            return cause;
        }
        if (error.getCause() instanceof Error cause) {
            throw cause;
        }
        return error;
    }

    // --- Several keys ------------------------------------------------------------------------------

    Map<K, V> getAll(Iterable<? extends K> wanted, Function<? super Set<? extends K>, ? extends Map<? extends K, ? extends V>> loader) {
        Map<K, V> found = new LinkedHashMap<>();
        Map<K, KeyBytes> missing = new LinkedHashMap<>();
        for (K key : wanted) {
            if (found.containsKey(key) || missing.containsKey(key)) {
                continue;
            }
            KeyBytes bytes = objects.keyBytes(key);
            V value = cache.getIfPresent(key, bytes);
            if (value != null) {
                found.put(key, value);
            } else {
                missing.put(key, bytes);
            }
        }
        if (!missing.isEmpty()) {
            loadAll(missing, loader, found);
        }
        Map<K, V> ordered = new LinkedHashMap<>();
        for (K key : wanted) {
            V value = found.get(key);
            if (value != null) {
                ordered.put(key, value);
            }
        }
        return Collections.unmodifiableMap(ordered);
    }

    private void loadAll(Map<K, KeyBytes> missing, Function<? super Set<? extends K>, ? extends Map<? extends K, ? extends V>> loader, Map<K, V> found) {
        Map<K, Pending.Load<V>> own = new LinkedHashMap<>();
        Map<K, Pending.Load<V>> others = new LinkedHashMap<>();
        // To end them takes no memory of the heap.
        List<Pending.Load<V>> begun = new ArrayList<>(missing.size());
        try {
            missing.forEach((key, bytes) -> {
                var load = new Pending.Load<V>(bytes);
                load.tryOwn();
                begun.add(load);
                Pending.Load<V> other = pending.begin(load);
                if (other == null) {
                    own.put(key, load);
                } else if (other.tryOwn()) {
                    begun.set(begun.size() - 1, other);
                    own.put(key, other);
                } else {
                    others.put(key, other);
                }
            });
            Map<K, Pending.Load<V>> absent = new LinkedHashMap<>();
            own.forEach((key, load) -> {
                V present = values.beforeLoad(load.key);
                if (present == null) {
                    absent.put(key, load);
                } else {
                    found.put(key, present);
                    pending.end(load, present);
                }
            });
            if (!absent.isEmpty()) {
                load(absent, loader, found);
            }
        } catch (Throwable error) {
            for (int i = 0; i < begun.size(); i++) {
                pending.fail(begun.get(i), error);
            }
            throw error;
        }
        // Own loads have ended, so two threads cannot wait for each other.
        others.forEach((key, load) -> {
            V value = await(load);
            if (value != null) {
                found.put(key, value);
            }
        });
    }

    private void load(Map<K, Pending.Load<V>> absent, Function<? super Set<? extends K>, ? extends Map<? extends K, ? extends V>> loader, Map<K, V> found) {
        Set<K> keys = Collections.unmodifiableSet(absent.keySet());
        long writes = pending.writes();
        Map<? extends K, ? extends V> values = timed(() -> loader.apply(keys));
        // Before own ones, which are writes, too.
        values.forEach((key, value) -> {
            if (!absent.containsKey(key) && !objects.hasWriter()) {
                objects.put(key, value, null, present -> present == 0 && pending.writes() == writes, objects.replaced);
            }
        });
        absent.forEach((key, load) -> {
            V value = values.get(key);
            V result = value == null ? null : added(key, value, load);
            pending.end(load, result);
            if (result != null) {
                found.put(key, result);
            }
        });
    }

    // --- With the loader of the cache --------------------------------------------------------------

    static <K, V> @Nullable V load(CacheLoader<? super K, V> loader, K key) {
        try {
            return loader.load(key);
        } catch (Exception error) {
            throw asUnchecked(error);
        }
    }

    Map<K, V> getAllByLoader(Iterable<? extends K> wanted, CacheLoader<? super K, V> loader) {
        return getAll(wanted, keys -> {
            try {
                @SuppressWarnings("unchecked")
                var values = (Map<K, V>) loader.loadAll(keys);
                return values;
            } catch (UnsupportedOperationException _) {
                Map<K, V> values = new LinkedHashMap<>();
                for (K key : keys) {
                    V value = load(loader, key);
                    if (value != null) {
                        values.put(key, value);
                    }
                }
                return values;
            } catch (Exception error) {
                throw asUnchecked(error);
            }
        });
    }

    private static RuntimeException asUnchecked(Exception error) {
        if (error instanceof InterruptedException) {
            Thread.currentThread().interrupt();
        }
        return error instanceof RuntimeException unchecked ? unchecked : new CompletionException(error);
    }

    /// Loads a value again that a read has found, unless this has failed lately. The read does not fail.
    void refreshIfPossible(K key, KeyBytes bytes, CacheLoader<? super K, V> loader) {
        long retry = retries.get((int) bytes.hash & RETRIES - 1);
        if (retry == 0 || System.nanoTime() - retry > 0) {
            try {
                var _ = refresh(key, bytes, loader);
            } catch (Throwable error) {
                refreshFailed(bytes, error);
            }
        }
    }

    private void refreshFailed(KeyBytes key, Throwable error) {
        retries.set((int) key.hash & RETRIES - 1, System.nanoTime() + RETRY_NANOS | 1);
        refreshFailures.note(error, "a value of a cache could not be loaded again, and stays");
    }

    /// Loads a value again, or for the first time, by the executor.
    CompletableFuture<@Nullable V> refresh(K key, KeyBytes bytes, CacheLoader<? super K, V> loader) {
        var own = new Pending.Load<V>(bytes);
        try {
            Pending.Load<V> other = pending.begin(own);
            if (other != null) {
                return other.future();
            }
            executor.execute(() -> {
                if (own.tryOwn()) {
                    refresh(key, bytes, loader, own);
                }
            });
        } catch (Throwable error) {
            pending.fail(own, error);
            throw error;
        }
        return own.future();
    }

    private void refresh(K key, KeyBytes bytes, CacheLoader<? super K, V> loader, Pending.Load<V> own) {
        try {
            V old = values.beforeReload(bytes);
            V value = timed(() -> {
                try {
                    return old == null ? loader.load(key) : loader.reload(key, old);
                } catch (Exception error) {
                    throw asUnchecked(error);
                }
            });
            if (value == null) {
                values.removeUnlessWritten(own);
            } else {
                values.replaceUnlessWritten(key, value, own);
            }
            pending.end(own, value);
        } catch (Throwable error) {
            refreshFailed(bytes, error);
            pending.fail(own, error);
        }
    }
}
