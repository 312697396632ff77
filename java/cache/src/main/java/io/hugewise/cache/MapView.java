package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
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
import java.util.function.BiFunction;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/// A cache as a map.
@SuppressWarnings("unchecked")
final class MapView<K, V> extends AbstractMap<K, V> implements ConcurrentMap<K, V> {
    /// Not to be collected, and closed, as long as a view of it is in use.
    @SuppressWarnings("unused")
    private final HugeCache<K, V> owner;
    private final ObjectStore<K, V> objects;

    MapView(HugeCache<K, V> owner, ObjectStore<K, V> objects) {
        this.owner = owner;
        this.objects = objects;
    }

    @Override
    public int size() {
        return Math.clamp(objects.count(), 0, Integer.MAX_VALUE);
    }

    @Override
    public boolean isEmpty() {
        return objects.count() <= 0;
    }

    @Override
    public @Nullable V get(@Nullable Object key) {
        return objects.peek((K) Objects.requireNonNull(key));
    }

    @Override
    public boolean containsKey(@Nullable Object key) {
        return get(key) != null;
    }

    @Override
    public boolean containsValue(@Nullable Object value) {
        return super.containsValue(Objects.requireNonNull(value));
    }

    @Override
    public @Nullable V put(K key, V value) {
        return changed(key, value, false);
    }

    /// Puts a value, and returns the old one.
    private @Nullable V changed(K key, V value, boolean onlyIfPresent) {
        var old = new AtomicReference<@Nullable MemorySegment>();
        KeyBytes bytes = objects.keyBytes(key);
        objects.put(key, value, null, present -> {
            old.setPlain(objects.payload(bytes, present));
            return old.getPlain() != null || !onlyIfPresent;
        }, objects.replaced);
        return value(old);
    }

    private @Nullable V value(AtomicReference<@Nullable MemorySegment> bytes) {
        MemorySegment copy = bytes.getPlain();
        return copy == null ? null : objects.codec.value(copy);
    }

    @Override
    public @Nullable V putIfAbsent(K key, V value) {
        return objects.putIfAbsent(key, value, null);
    }

    @Override
    public @Nullable V remove(@Nullable Object key) {
        var old = new AtomicReference<@Nullable MemorySegment>();
        KeyBytes bytes = objects.keyBytes((K) Objects.requireNonNull(key));
        objects.remove((K) key, present -> {
            old.setPlain(objects.payload(bytes, present));
            return true;
        }, _ -> {});
        return value(old);
    }

    @Override
    public boolean remove(@Nullable Object key, @Nullable Object value) {
        K of = (K) Objects.requireNonNull(key);
        return objects.ifEqual(of, (V) value, isSame -> objects.remove(of, isSame, _ -> {}));
    }

    @Override
    public @Nullable V replace(K key, V value) {
        return changed(key, value, true);
    }

    @Override
    public boolean replace(K key, V before, V after) {
        Objects.requireNonNull(after);
        return objects.ifEqual(key, Objects.requireNonNull(before), isSame -> objects.put(key, after, null, isSame, objects.replaced));
    }

    @Override
    public @Nullable V computeIfAbsent(K key, Function<? super K, ? extends @Nullable V> function) {
        Objects.requireNonNull(function);
        V present = get(key);
        return present != null ? present : objects.compute(key, true, _ -> function.apply(key));
    }

    @Override
    public @Nullable V computeIfPresent(K key, BiFunction<? super K, ? super V, ? extends @Nullable V> function) {
        Objects.requireNonNull(function);
        return get(key) == null ? null : objects.compute(key, false, old -> old == null ? null : function.apply(key, old));
    }

    @Override
    public @Nullable V compute(K key, BiFunction<? super K, ? super @Nullable V, ? extends @Nullable V> function) {
        Objects.requireNonNull(function);
        return objects.compute(key, false, old -> function.apply(key, old));
    }

    @Override
    public @Nullable V merge(K key, V value, BiFunction<? super V, ? super V, ? extends @Nullable V> function) {
        Objects.requireNonNull(value);
        Objects.requireNonNull(function);
        return objects.compute(key, false, old -> old == null ? value : function.apply(old, value));
    }

    /// Unlike the default, it ends if values are equal to none that is read again.
    @Override
    public void replaceAll(BiFunction<? super K, ? super V, ? extends V> function) {
        keySet().forEach(key -> computeIfPresent(key, (of, value) -> Objects.requireNonNull(function.apply(of, value))));
    }

    @Override
    public void clear() {
        objects.clear();
    }

    @Override
    public Set<K> keySet() {
        return new AbstractSet<>() {
            @Override
            public int size() {
                return MapView.this.size();
            }

            @Override
            public boolean contains(@Nullable Object key) {
                return containsKey(key);
            }

            @Override
            public boolean remove(@Nullable Object key) {
                return MapView.this.remove(key) != null;
            }

            @Override
            public Iterator<K> iterator() {
                var entries = new Entries();
                return new Iterator<>() {
                    @Override
                    public boolean hasNext() {
                        return entries.hasNext();
                    }

                    @Override
                    public K next() {
                        return entries.next().getKey();
                    }

                    @Override
                    public void remove() {
                        entries.remove();
                    }
                };
            }
        };
    }

    @Override
    public Set<Entry<K, V>> entrySet() {
        return new AbstractSet<>() {
            @Override
            public boolean contains(@Nullable Object entry) {
                return entry instanceof Entry<?, ?> of && of.getValue() != null && of.getValue().equals(get(of.getKey()));
            }

            @Override
            public boolean remove(@Nullable Object entry) {
                return entry instanceof Entry<?, ?> of && MapView.this.remove(of.getKey(), of.getValue());
            }

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
        private final Index.Cursor cursor = objects.store.index.cursor();
        /// Keys and values in turn.
        private final Queue<MemorySegment> read = new ArrayDeque<>();
        /// Values that had no entry at the beginning. Some may have one again.
        private final Map<KeyBytes, MemorySegment> evicted = objects.behind == null ? Map.of() : objects.behind.evictedPayloads();
        private @Nullable K last;

        Entries() {
            evicted.forEach((key, payload) -> {
                read.add(MemorySegment.ofArray(key.bytes));
                read.add(payload);
            });
        }

        @Override
        public boolean hasNext() {
            boolean isMore = true;
            while (read.isEmpty() && isMore) {
                isMore = objects.store.visit(cursor, entry -> {
                    MemorySegment key = EntryCodec.copy(objects.codec.keyMemory(entry));
                    if (evicted.isEmpty() || !evicted.containsKey(objects.keyBytes(key))) {
                        read.add(key);
                        read.add(objects.codec.copy(entry));
                    }
                });
            }
            return !read.isEmpty();
        }

        @Override
        public Entry<K, V> next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            Entry<K, V> next = new Written(objects.codec.key(read.remove()), objects.codec.value(read.remove()));
            last = next.getKey();
            return next;
        }

        @Override
        public void remove() {
            if (last == null) {
                throw new IllegalStateException("no entry was returned, or it was removed already");
            }
            objects.remove(last, ObjectStore.ALWAYS, _ -> {});
            last = null;
        }
    }

    /// An entry that was read, whose value can be changed.
    private final class Written extends SimpleEntry<K, V> {
        private static final long serialVersionUID = 1;

        Written(K key, V value) {
            super(key, value);
        }

        @Override
        public V setValue(V value) {
            objects.put(getKey(), value, null, ObjectStore.ALWAYS, objects.replaced);
            return super.setValue(value);
        }
    }
}
