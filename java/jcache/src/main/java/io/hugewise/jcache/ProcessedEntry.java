package io.hugewise.jcache;

import java.util.Objects;
import javax.cache.processor.MutableEntry;
import org.jspecify.annotations.Nullable;

/// An entry as its processor sees it. Its change is applied after the processor.
final class ProcessedEntry<K, V> implements MutableEntry<K, V> {
    /// What a processor did last.
    enum Change {
        NONE, READ, LOADED, WRITTEN, REMOVED
    }

    private final KeyState<K, V> state;
    private final Backend<K, V> backend;
    private @Nullable V current;
    private Change change = Change.NONE;

    ProcessedEntry(KeyState<K, V> state, Backend<K, V> backend) {
        this.state = state;
        this.backend = backend;
        this.current = state.value();
    }

    Change change() {
        return change;
    }

    @Nullable V current() {
        return current;
    }

    @Override
    public boolean exists() {
        return current != null;
    }

    @Override
    public void remove() {
        change = change == Change.LOADED || (change == Change.WRITTEN && state.value() == null) ? Change.NONE : Change.REMOVED;
        current = null;
    }

    @Override
    public void setValue(V value) {
        current = Objects.requireNonNull(value, "value");
        change = Change.WRITTEN;
    }

    @Override
    public K getKey() {
        return state.key;
    }

    @Override
    public @Nullable V getValue() {
        if (current != null) {
            change = change == Change.NONE ? Change.READ : change;
        } else if (change != Change.REMOVED) {
            current = backend.load(state.key);
            change = current == null ? change : Change.LOADED;
        }
        return current;
    }

    @Override
    public <T> T unwrap(Class<T> type) {
        return Unwrapping.as(type, this);
    }
}
