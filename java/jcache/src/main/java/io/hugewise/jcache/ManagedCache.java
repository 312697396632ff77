package io.hugewise.jcache;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ForkJoinPool;
import java.util.function.Consumer;
import javax.cache.Cache;
import javax.cache.CacheException;
import javax.cache.CacheManager;
import javax.cache.configuration.CacheEntryListenerConfiguration;
import javax.cache.configuration.Configuration;
import javax.cache.integration.CacheLoaderException;
import javax.cache.integration.CompletionListener;
import javax.cache.processor.EntryProcessor;
import javax.cache.processor.EntryProcessorException;
import javax.cache.processor.EntryProcessorResult;
import javax.management.ObjectName;
import org.jspecify.annotations.Nullable;

/// A cache of a manager.
final class ManagedCache<K, V> extends KeyOperations<K, V> {
    private final HugeCacheManager manager;

    ManagedCache(String name, HugeCacheManager manager, HugeConfiguration<K, V> configuration) {
        super(name, manager.getClassLoader(), configuration);
        this.manager = manager;
    }

    // --- Several keys ------------------------------------------------------------------------------

    @Override
    public Map<K, V> getAll(Set<? extends K> keys) {
        checkOpen();
        keys.forEach(this::checkedKey);
        Map<K, V> found = new HashMap<>();
        Set<K> missing = new HashSet<>();
        for (K key : keys) {
            V value = read(key);
            if (value != null) {
                found.put(key, value);
            } else {
                statistics.read(false);
                missing.add(key);
            }
        }
        if (!missing.isEmpty() && backend.isReadThrough) {
            addLoaded(missing, false, found);
        }
        return found;
    }

    private void addLoaded(Set<K> keys, boolean doesReplace, Map<K, V> added) {
        Map<K, V> loaded = backend.loadAll(keys);
        for (K key : keys) {
            V value = loaded.get(key);
            if (value != null) {
                boolean isAdded = with(key, state -> (!doesReplace && state.value() != null) || state.load(value) != null);
                if (isAdded) {
                    added.put(key, value);
                }
            }
        }
    }

    @Override
    public void loadAll(Set<? extends K> keys, boolean replaceExistingValues, @Nullable CompletionListener listener) {
        checkOpen();
        keys.forEach(this::checkedKey);
        ForkJoinPool.commonPool().execute(() -> {
            Exception failure = null;
            try {
                Set<K> wanted = new HashSet<>(keys);
                if (!replaceExistingValues) {
                    wanted.removeIf(this::containsKey);
                }
                if (backend.loader != null && !wanted.isEmpty()) {
                    addLoaded(wanted, replaceExistingValues, new HashMap<>());
                }
            } catch (CacheLoaderException error) {
                failure = error;
            } catch (Throwable error) {
                failure = new CacheLoaderException("the entries could not be loaded", error);
            }
            if (listener != null && failure != null) {
                listener.onException(failure);
            } else if (listener != null) {
                listener.onCompletion();
            }
        });
    }

    @Override
    public void putAll(Map<? extends K, ? extends V> map) {
        long start = statistics.start();
        checkOpen();
        Collection<Cache.Entry<? extends K, ? extends V>> unwritten = new ArrayList<>();
        map.forEach((key, value) -> {
            unwritten.add(new ReadEntry<>(checkedKey(key), checkedValue(value)));
            byte[] _ = entries.stored(entries.lockBytes(key), key, value, 0);
        });
        List<Event<K, V>> events = new ArrayList<>();
        CacheException failed = locks.withAll(map.keySet().stream().map(entries::lockBytes).toList(), () -> {
            Map<K, byte[]> places = places(map.keySet());
            CacheException failure = null;
            try {
                backend.writeAll(unwritten);
            } catch (CacheException error) {
                failure = error;
            }
            Set<Object> skipped = new HashSet<>();
            if (failure != null) {
                unwritten.forEach(entry -> skipped.add(entry.getKey()));
            }
            places.keySet().removeAll(skipped);
            changeEach(places, events, state -> store(state, Objects.requireNonNull(map.get(state.key))));
            return failure;
        });
        finish(events, failed);
        statistics.writtenSince(start);
    }

    private Map<K, byte[]> places(Set<? extends K> keys) {
        Map<K, byte[]> places = new HashMap<>();
        keys.forEach(key -> places.put(key, entries.bytes(key)));
        return places;
    }

    /// Changes the entries of keys that the backend has changed already. If this fails for one, the others are changed all the
    /// same, and its entry is removed.
    private void changeEach(Map<K, byte[]> places, List<Event<K, V>> events, Consumer<KeyState<K, V>> change) {
        Throwable failure = null;
        for (Map.Entry<K, byte[]> place : places.entrySet()) {
            try {
                change.accept(new KeyState<>(this, place.getKey(), place.getValue(), events));
            } catch (Throwable error) {
                failure = error;
                if (backend.isWriteThrough) {
                    entries.remove(place.getValue());
                }
            }
        }
        if (failure instanceof Error error) {
            throw error;
        }
        if (failure instanceof RuntimeException error) {
            throw error;
        }
    }

    private void finish(List<Event<K, V>> events, @Nullable CacheException failure) {
        listeners.dispatch(events);
        if (failure != null) {
            throw failure;
        }
    }

    @Override
    public void removeAll(Set<? extends K> keys) {
        long start = statistics.start();
        checkOpen();
        keys.forEach(this::checkedKey);
        if (keys.isEmpty()) {
            return;
        }
        List<Event<K, V>> events = new ArrayList<>();
        CacheException failed = locks.withAll(keys.stream().map(entries::lockBytes).toList(), () -> {
            Set<K> undeleted = new HashSet<>(keys);
            Map<K, byte[]> places = places(keys);
            CacheException failure = null;
            try {
                backend.deleteAll(undeleted);
            } catch (CacheException error) {
                failure = error;
            }
            if (failure != null) {
                places.keySet().removeAll(undeleted);
            }
            changeEach(places, events, this::drop);
            return failure;
        });
        finish(events, failed);
        statistics.removedSince(start);
    }

    @Override
    public void removeAll() {
        checkOpen();
        Set<K> keys = new HashSet<>();
        entries.iterator().forEachRemaining(entry -> keys.add(entries.key(entry.getKey(), entry.getValue())));
        removeAll(keys);
    }

    @Override
    public void clear() {
        checkOpen();
        entries.cache.invalidateAll();
    }

    @Override
    public <T> Map<K, EntryProcessorResult<T>> invokeAll(Set<? extends K> keys, EntryProcessor<K, V, T> processor, @Nullable Object... arguments) {
        checkOpen();
        Objects.requireNonNull(processor, "processor");
        keys.forEach(this::checkedKey);
        Map<K, EntryProcessorResult<T>> results = new HashMap<>();
        for (K key : keys) {
            try {
                T result = invoke(key, processor, arguments);
                if (result != null) {
                    results.put(key, () -> result);
                }
            } catch (CacheException error) {
                EntryProcessorException failure = error instanceof EntryProcessorException of ? of : new EntryProcessorException(error);
                results.put(key, () -> {
                    throw failure;
                });
            }
        }
        return results;
    }

    @Override
    public Iterator<Entry<K, V>> iterator() {
        checkOpen();
        Iterator<Map.Entry<byte[], byte[]>> stored = entries.iterator();
        return new Iterator<>() {
            private @Nullable Entry<K, V> next;
            private @Nullable K last;

            @Override
            public boolean hasNext() {
                while (next == null && stored.hasNext()) {
                    Map.Entry<byte[], byte[]> entry = stored.next();
                    if (!Expirations.isPast(TimedEntries.expiry(entry.getValue()))) {
                        next = new ReadEntry<>(entries.key(entry.getKey(), entry.getValue()), entries.value(entry.getKey(), entry.getValue()));
                    }
                }
                return next != null;
            }

            @Override
            public Entry<K, V> next() {
                Entry<K, V> entry = hasNext() ? next : null;
                if (entry == null) {
                    throw new NoSuchElementException();
                }
                next = null;
                last = entry.getKey();
                statistics.read(true);
                if (!locks.isOwn(entries.lockBytes(last))) {
                    with(last, state -> {
                        state.accessed();
                        return true;
                    });
                }
                return entry;
            }

            @Override
            public void remove() {
                if (last == null) {
                    throw new IllegalStateException("no entry was returned, or it was removed already");
                }
                ManagedCache.this.remove(last);
                last = null;
            }
        };
    }

    // --- The cache itself --------------------------------------------------------------------------

    void start() {
        setManagementEnabled(configuration.isManagementEnabled());
        setStatisticsEnabled(configuration.isStatisticsEnabled());
    }

    void setManagementEnabled(boolean isEnabled) {
        configuration.setManagementEnabled(isEnabled);
        if (isEnabled) {
            HugeCacheManager.register(configurationName(), new ConfigurationBean(configuration));
        } else {
            HugeCacheManager.unregister(configurationName());
        }
    }

    void setStatisticsEnabled(boolean isEnabled) {
        configuration.setStatisticsEnabled(isEnabled);
        statistics.isEnabled = isEnabled;
        if (isEnabled) {
            HugeCacheManager.register(statisticsName(), statistics);
        } else {
            HugeCacheManager.unregister(statisticsName());
        }
    }

    ObjectName configurationName() {
        return manager.objectName("CacheConfiguration", getName());
    }

    ObjectName statisticsName() {
        return manager.objectName("CacheStatistics", getName());
    }

    @Override
    public <C extends Configuration<K, V>> C getConfiguration(Class<C> type) {
        if (type.isInstance(configuration)) {
            return type.cast(new HugeConfiguration<>(configuration));
        }
        throw new IllegalArgumentException("the configuration does not have the type " + type.getName());
    }

    @Override
    public CacheManager getCacheManager() {
        return manager;
    }

    @Override
    public void registerCacheEntryListener(CacheEntryListenerConfiguration<K, V> listener) {
        checkOpen();
        listeners.add(listener);
        configuration.addCacheEntryListenerConfiguration(listener);
    }

    @Override
    public void deregisterCacheEntryListener(CacheEntryListenerConfiguration<K, V> listener) {
        checkOpen();
        close(listeners.remove(Objects.requireNonNull(listener, "listener")));
        configuration.removeCacheEntryListenerConfiguration(listener);
    }

    @Override
    public void close() {
        synchronized (this) {
            if (isClosed) {
                return;
            }
            isClosed = true;
        }
        manager.closed(this);
        close(backend.loader);
        close(backend.writer);
        close(expiryPolicy);
        listeners.all().forEach(ManagedCache::close);
        entries.close();
    }

    private static void close(@Nullable Object part) {
        if (part instanceof Closeable closeable) {
            try {
                closeable.close();
            } catch (IOException | RuntimeException error) {
                System.getLogger("io.hugewise.jcache").log(System.Logger.Level.WARNING, "cannot close " + part, error);
            }
        }
    }

    @Override
    public boolean isClosed() {
        return isClosed;
    }

    @Override
    public <T> T unwrap(Class<T> type) {
        return Unwrapping.as(type, this, entries.cache);
    }
}
