package io.hugewise.cache;

import java.util.concurrent.atomic.LongAdder;
import org.jspecify.annotations.Nullable;

/// Adds loaded values, unless their keys were written since their loads began.
final class LoadedValues<K, V> {
    final LongAdder bytes = new LongAdder();
    private final ObjectStore<K, V> objects;
    private final @Nullable WriteBehind<K, V> behind;

    LoadedValues(ObjectStore<K, V> objects) {
        this.objects = objects;
        this.behind = objects.behind;
    }

    /// Adds a loaded value, unless its key was written since its load began.
    ///
    /// @return the value of the key that is present instead
    @Nullable V add(K key, V value, Pending.Load<V> load) {
        bytes.add(objects.codec.size(value));
        objects.store.clock.read();
        try {
            return tryAdd(key, value, load);
        } finally {
            objects.notifications.deliver();
        }
    }

    private @Nullable V tryAdd(K key, V value, Pending.Load<V> load) {
        while (!load.isDiscarded && !objects.putWritten(key, load.key, value, null, present -> present == 0 && !load.isDiscarded, objects.replaced)) {
            V present = objects.value(load.key);
            if (present != null) {
                return present;
            }
        }
        return null;
    }

    void replaceUnlessWritten(K key, V value, Pending.Load<V> load) {
        objects.store.clock.read();
        objects.putWritten(key, load.key, value, null, _ -> !load.isDiscarded, objects.replaced);
        objects.notifications.deliver();
    }

    void removeUnlessWritten(Pending.Load<V> load) {
        objects.store.clock.read();
        objects.removeWritten(load.key, _ -> !load.isDiscarded, _ -> {});
        objects.notifications.deliver();
    }

    /// The value of a key whose load has begun; null if it is to be loaded. The store has its last change then.
    @Nullable V beforeLoad(KeyBytes key) {
        V present = objects.value(key);
        V value = present == null ? objects.evictedValue(key) : present;
        if (value == null && behind != null) {
            behind.awaitWritten(key);
        }
        return value;
    }

    /// The value of a key whose load has begun. The store has its last change then.
    @Nullable V beforeReload(KeyBytes key) {
        if (behind != null) {
            behind.awaitWritten(key);
        }
        objects.store.clock.read();
        return objects.value(key);
    }
}
