package io.hugewise.cache;

import java.util.AbstractMap;
import java.util.AbstractSet;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/// A cache as a map.
@SuppressWarnings("unchecked")
final class MapView<K, V> extends AbstractMap<K, V> implements ConcurrentMap<K, V> {
    private final HugeCache<K, V> cache;

    MapView(HugeCache<K, V> cache) {
        this.cache = cache;
    }

    @Override
    public int size() {
        return (int) Math.min(Integer.MAX_VALUE, cache.estimatedSize());
    }

    @Override
    public boolean isEmpty() {
        return cache.estimatedSize() == 0;
    }

    @Override
    public @Nullable V get(@Nullable Object key) {
        return cache.peek((K) Objects.requireNonNull(key));
    }

    @Override
    public boolean containsKey(@Nullable Object key) {
        return get(key) != null;
    }

    @Override
    public @Nullable V put(K key, V value) {
        return changed(key, value, false);
    }

    /// Puts a value, and returns the old one.
    private @Nullable V changed(K key, V value, boolean onlyIfPresent) {
        var old = new AtomicReference<@Nullable V>();
        cache.put(key, value, present -> {
            if (present != 0) {
                old.setPlain(cache.value(present));
            }
            return present != 0 || !onlyIfPresent;
        }, cache.replaced());
        return old.getPlain();
    }

    @Override
    public @Nullable V putIfAbsent(K key, V value) {
        return cache.putIfAbsent(key, value);
    }

    @Override
    public @Nullable V remove(@Nullable Object key) {
        var old = new AtomicReference<@Nullable V>();
        cache.remove((K) Objects.requireNonNull(key), _ -> true, entry -> old.setPlain(cache.value(entry)));
        return old.getPlain();
    }

    @Override
    public boolean remove(@Nullable Object key, @Nullable Object value) {
        return cache.remove((K) Objects.requireNonNull(key), present -> cache.isValue(present, value), _ -> {});
    }

    @Override
    public @Nullable V replace(K key, V value) {
        return changed(key, value, true);
    }

    @Override
    public boolean replace(K key, V before, V after) {
        return cache.put(key, after, present -> present != 0 && cache.isValue(present, before), cache.replaced());
    }

    @Override
    public void clear() {
        cache.invalidateAll();
    }

    @Override
    public Set<Entry<K, V>> entrySet() {
        return new AbstractSet<>() {
            @Override
            public int size() {
                return MapView.this.size();
            }

            @Override
            public Iterator<Entry<K, V>> iterator() {
                return new Entries();
            }
        };
    }

    /// Reads the entries of a part of the index at a time.
    private final class Entries implements Iterator<Entry<K, V>> {
        private final Index.Cursor cursor = cache.store().index.cursor();
        private final Queue<Entry<K, V>> read = new ArrayDeque<>();
        private @Nullable K last;

        @Override
        public boolean hasNext() {
            boolean isMore = true;
            while (read.isEmpty() && isMore) {
                isMore = cache.store().visit(cursor, entry -> read.add(Map.entry(cache.key(entry), cache.value(entry))));
            }
            return !read.isEmpty();
        }

        @Override
        public Entry<K, V> next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            Entry<K, V> next = read.remove();
            last = next.getKey();
            return next;
        }

        @Override
        public void remove() {
            if (last == null) {
                throw new IllegalStateException("no entry was returned, or it was removed already");
            }
            cache.invalidate(last);
            last = null;
        }
    }
}
