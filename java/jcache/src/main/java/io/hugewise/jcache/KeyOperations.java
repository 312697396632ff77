package io.hugewise.jcache;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import javax.cache.Cache;
import javax.cache.CacheException;
import javax.cache.event.EventType;
import javax.cache.expiry.ExpiryPolicy;
import javax.cache.processor.EntryProcessor;
import javax.cache.processor.EntryProcessorException;
import org.jspecify.annotations.Nullable;

/// The operations of single keys. Those of a key exclude each other; events are dispatched after them.
abstract class KeyOperations<K, V> implements Cache<K, V> {
    final TimedEntries<K, V> entries;
    final Listeners<K, V> listeners = new Listeners<>();
    final Expirations expirations;
    final Backend<K, V> backend;
    final Statistics statistics;
    final HugeConfiguration<K, V> configuration;
    final ExpiryPolicy expiryPolicy;
    final KeyLocks locks = new KeyLocks();
    volatile boolean isClosed;
    private final String name;

    KeyOperations(String name, ClassLoader classes, HugeConfiguration<K, V> configuration) {
        this.name = name;
        this.configuration = configuration;
        backend = new Backend<>(configuration);
        expiryPolicy = configuration.getExpiryPolicyFactory().create();
        expirations = new Expirations(expiryPolicy);
        configuration.getCacheEntryListenerConfigurations().forEach(listeners::add);
        entries = new TimedEntries<>(name, configuration.getMaximumBytes(), classes, this::expired);
        statistics = new Statistics(() -> entries.cache.stats().evictions());
    }

    private void expired(K key, V value) {
        listeners.dispatch(List.of(new Event<>(this, EventType.EXPIRED, key, value, value)));
    }

    @Override
    public String getName() {
        return name;
    }

    /// Runs an operation of a key, and dispatches its events.
    <R extends @Nullable Object> R with(K key, Function<KeyState<K, V>, R> operation) {
        checkOpen();
        List<Event<K, V>> events = new ArrayList<>(1);
        byte[] lock = entries.lockBytes(checkedKey(key));
        R result = locks.with(lock, () -> operation.apply(new KeyState<>(this, key, entries.bytes(key), events)));
        listeners.dispatch(events);
        return result;
    }

    /// The value that is present, whose read is counted; null if there is none. It does not wait for operations of the key,
    /// unless its time of expiry changes.
    @Nullable V read(K key) {
        checkOpen();
        TimedEntries.Found found = entries.find(checkedKey(key));
        if (found == null) {
            return null;
        }
        byte[] lock = entries.lockBytes(key);
        long expiry = TimedEntries.expiry(found.stored());
        if (Expirations.isPast(expiry)) {
            return locks.isOwn(lock) ? null : this.<@Nullable V>with(key, this::used);
        }
        V value = entries.value(found.bytes(), found.stored());
        statistics.read(true);
        long next = expirations.afterAccess(expiry);
        if (next != expiry && !locks.isOwn(lock)) {
            locks.with(lock, () -> entries.setExpiry(found, next));
        }
        return value;
    }

    private @Nullable V used(KeyState<K, V> state) {
        V present = state.value();
        if (present != null) {
            statistics.read(true);
            state.accessed();
        }
        return present;
    }

    /// Counts a read that found a value, or null.
    @Nullable V counted(@Nullable V value) {
        statistics.read(value != null);
        return value;
    }

    /// Writes through, then to the cache.
    private void write(KeyState<K, V> state, V value) {
        if (backend.isWriteThrough) {
            // Before the backend has it.
            byte[] _ = state.stored(value, 0);
        }
        backend.write(state.key, value);
        afterWriting(state, () -> {
            store(state, value);
            return true;
        });
    }

    /// Changes the cache as the backend was changed. If this fails, the entry is removed, which would be an old one.
    boolean afterWriting(KeyState<K, V> state, BooleanSupplier change) {
        try {
            return change.getAsBoolean();
        } catch (Throwable error) {
            if (backend.isWriteThrough) {
                entries.remove(state.bytes);
            }
            throw error;
        }
    }

    void store(KeyState<K, V> state, V value) {
        if (state.put(value)) {
            statistics.written();
        }
    }

    private boolean delete(KeyState<K, V> state) {
        backend.delete(state.key);
        return afterWriting(state, () -> drop(state));
    }

    boolean drop(KeyState<K, V> state) {
        boolean isRemoved = state.remove();
        if (isRemoved) {
            statistics.removed();
        }
        return isRemoved;
    }

    @Override
    public @Nullable V get(K key) {
        long start = statistics.start();
        V value = read(key);
        if (value == null) {
            value = backend.isReadThrough ? this.<@Nullable V>with(key, this::load) : counted(null);
        }
        statistics.readSince(start);
        return value;
    }

    private @Nullable V load(KeyState<K, V> state) {
        V present = used(state);
        if (present != null) {
            return present;
        }
        statistics.read(false);
        V loaded = backend.load(state.key);
        return loaded == null ? null : state.load(loaded);
    }

    @Override
    public boolean containsKey(K key) {
        checkOpen();
        return entries.isPresent(checkedKey(key));
    }

    @Override
    public void put(K key, V value) {
        long start = statistics.start();
        checkedValue(value);
        with(key, state -> {
            write(state, value);
            return true;
        });
        statistics.writtenSince(start);
    }

    @Override
    public @Nullable V getAndPut(K key, V value) {
        long start = statistics.start();
        checkedValue(value);
        V old = with(key, state -> {
            V present = counted(state.value());
            write(state, value);
            return present;
        });
        statistics.readSince(start);
        statistics.writtenSince(start);
        return old;
    }

    @Override
    public boolean putIfAbsent(K key, V value) {
        long start = statistics.start();
        checkedValue(value);
        boolean isAdded = with(key, state -> {
            if (counted(state.value()) != null) {
                return false;
            }
            write(state, value);
            return state.value() != null;
        });
        statistics.writtenSince(start);
        return isAdded;
    }

    @Override
    public boolean remove(K key) {
        long start = statistics.start();
        boolean isRemoved = with(key, this::delete);
        statistics.removedSince(start);
        return isRemoved;
    }

    @Override
    public boolean remove(K key, V oldValue) {
        long start = statistics.start();
        checkedValue(oldValue);
        boolean isRemoved = with(key, state -> {
            V present = counted(state.value());
            if (oldValue.equals(present)) {
                return delete(state);
            }
            state.accessed();
            return false;
        });
        statistics.removedSince(start);
        return isRemoved;
    }

    @Override
    public @Nullable V getAndRemove(K key) {
        long start = statistics.start();
        V old = with(key, state -> {
            V present = counted(state.value());
            delete(state);
            return present;
        });
        statistics.readSince(start);
        statistics.removedSince(start);
        return old;
    }

    @Override
    public boolean replace(K key, V oldValue, V newValue) {
        long start = statistics.start();
        checkedValue(oldValue);
        checkedValue(newValue);
        boolean isReplaced = with(key, state -> {
            if (oldValue.equals(counted(state.value()))) {
                write(state, newValue);
                return true;
            }
            state.accessed();
            return false;
        });
        statistics.writtenSince(start);
        return isReplaced;
    }

    @Override
    public boolean replace(K key, V value) {
        return getAndReplace(key, value) != null;
    }

    @Override
    public @Nullable V getAndReplace(K key, V value) {
        long start = statistics.start();
        checkedValue(value);
        V old = with(key, state -> {
            V present = counted(state.value());
            if (present != null) {
                write(state, value);
            }
            return present;
        });
        statistics.readSince(start);
        statistics.writtenSince(start);
        return old;
    }

    @Override
    public <T> @Nullable T invoke(K key, EntryProcessor<K, V, T> processor, @Nullable Object... arguments) {
        Objects.requireNonNull(processor, "processor");
        long start = statistics.start();
        T result = this.<@Nullable T>with(key, state -> {
            counted(state.value());
            var entry = new ProcessedEntry<>(state, backend);
            T returned;
            try {
                returned = processor.process(entry, arguments);
            } catch (CacheException error) {
                throw error;
            } catch (RuntimeException error) {
                throw new EntryProcessorException("the processor failed", error);
            }
            apply(entry, state);
            return returned;
        });
        statistics.readSince(start);
        return result;
    }

    private void apply(ProcessedEntry<K, V> entry, KeyState<K, V> state) {
        switch (entry.change()) {
            case NONE -> {}
            case READ -> state.accessed();
            case LOADED -> state.load(Objects.requireNonNull(entry.current()));
            case WRITTEN -> write(state, Objects.requireNonNull(entry.current()));
            case REMOVED -> delete(state);
        }
    }

    void checkOpen() {
        if (isClosed) {
            throw new IllegalStateException("the cache '" + name + "' is closed");
        }
    }

    K checkedKey(K key) {
        return checked(key, configuration.getKeyType(), "key");
    }

    V checkedValue(V value) {
        checkOpen();
        return checked(value, configuration.getValueType(), "value");
    }

    private static <T> T checked(T object, Class<T> type, String what) {
        Objects.requireNonNull(object, what);
        if (!type.isInstance(object)) {
            throw new ClassCastException("a " + what + " of this cache is of " + type.getName() + ", not " + object.getClass().getName());
        }
        return object;
    }
}
