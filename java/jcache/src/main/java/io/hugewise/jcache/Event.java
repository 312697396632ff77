package io.hugewise.jcache;

import javax.cache.Cache;
import javax.cache.event.CacheEntryEvent;
import javax.cache.event.EventType;
import org.jspecify.annotations.Nullable;

/// A change of an entry. If it was removed or has expired, the value is that which it had.
final class Event<K, V> extends CacheEntryEvent<K, V> {
    private static final long serialVersionUID = 1;

    private final transient K key;
    private final transient V value;
    private final transient @Nullable V old;

    Event(Cache<K, V> cache, EventType type, K key, V value, @Nullable V old) {
        super(cache, type);
        this.key = key;
        this.value = value;
        this.old = old;
    }

    @Override
    public K getKey() {
        return key;
    }

    @Override
    public V getValue() {
        return value;
    }

    @Override
    public @Nullable V getOldValue() {
        return old;
    }

    @Override
    public boolean isOldValueAvailable() {
        return old != null;
    }

    @Override
    public <T> T unwrap(Class<T> type) {
        return Unwrapping.as(type, this);
    }
}
