package io.hugewise.jcache;

import static javax.cache.event.EventType.CREATED;
import static javax.cache.event.EventType.EXPIRED;
import static javax.cache.event.EventType.REMOVED;
import static javax.cache.event.EventType.UPDATED;

import java.util.List;
import javax.cache.event.EventType;
import org.jspecify.annotations.Nullable;

/// The entry of a key during an operation, which excludes others of the same key. Events are collected, to be
/// dispatched afterwards.
final class KeyState<K, V> {
    final K key;
    private final KeyOperations<K, V> cache;
    final byte[] bytes;
    private final List<Event<K, V>> events;
    private @Nullable V value;
    private long expiry;

    KeyState(KeyOperations<K, V> cache, K key, byte[] bytes, List<Event<K, V>> events) {
        this.cache = cache;
        this.key = key;
        this.bytes = bytes;
        this.events = events;
        byte[] stored = cache.entries.get(bytes);
        if (stored != null) {
            V present = cache.entries.value(bytes, stored);
            expiry = TimedEntries.expiry(stored);
            if (Expirations.isPast(expiry)) {
                cache.entries.remove(bytes);
                event(EXPIRED, present, present);
            } else {
                value = present;
            }
        }
    }

    /// The present value; null if there is none.
    @Nullable V value() {
        return value;
    }

    private void event(EventType type, V now, @Nullable V old) {
        if (!cache.listeners.isEmpty()) {
            events.add(new Event<>(cache, type, key, now, old));
        }
    }

    /// Adds or replaces the value. Nothing is changed if it is too large.
    ///
    /// @return whether it is in the cache
    boolean put(V now) {
        V old = value;
        long next = old == null ? cache.expirations.afterCreation() : cache.expirations.afterUpdate(expiry);
        if (old == null && Expirations.isPast(next)) {
            event(EXPIRED, now, now);
            return false;
        }
        byte[] stored = stored(now, next);
        event(old == null ? CREATED : UPDATED, now, old);
        expiry = next;
        value = now;
        cache.entries.put(bytes, stored);
        return true;
    }

    /// What would be put.
    ///
    /// @throws TooLargeException if it is too large
    byte[] stored(V now, long time) {
        return cache.entries.stored(bytes, key, now, time);
    }

    /// Adds a value that was loaded, unless it is too large.
    ///
    /// @return the value; null if it has expired already
    @Nullable V load(V loaded) {
        try {
            return put(loaded) ? loaded : null;
        } catch (TooLargeException _) {
            return loaded;
        }
    }

    /// Notes that the present value was read.
    void accessed() {
        V present = value;
        if (present != null) {
            long next = cache.expirations.afterAccess(expiry);
            if (next != expiry) {
                expiry = next;
                cache.entries.put(bytes, stored(present, next));
            }
        }
    }

    /// Removes the present value.
    ///
    /// @return whether there was one
    boolean remove() {
        V old = value;
        if (old == null) {
            return false;
        }
        cache.entries.remove(bytes);
        event(REMOVED, old, old);
        value = null;
        return true;
    }
}
