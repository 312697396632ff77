package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;
import java.util.function.LongPredicate;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/// The store, with keys and values as objects.
final class ObjectStore<K, V> {
    /// The condition that a call without one has.
    static final LongPredicate ALWAYS = _ -> true;

    final Store store;
    final EntryCodec<K, V> codec;
    final Expiration<K, V> expiration;
    final Pending<V> pending;
    final LongAdder puts = new LongAdder();
    /// Notifies the listener of an entry that was replaced.
    final LongConsumer replaced = this::notifyReplaced;
    final Notifications<K, V> notifications;
    /// If the miss ratio is estimated.
    final @Nullable MissRatioEstimate estimate;
    private final LongConsumer changing;
    /// With write-back.
    final @Nullable WriteBehind<K, V> behind;
    private final @Nullable UnwrittenChanges<K, V> unwritten;
    /// With write-through.
    private final @Nullable WriteThrough<K, V> through;

    /// @param changing is called with the hash before an entry is changed, replaced or removed, with its stripe locked
    ObjectStore(HugeCacheBuilder<K, V> options, CacheMemory memory, LongConsumer changing) {
        this.changing = changing;
        Manifest manifest = memory.manifest();
        expiration = new Expiration<>(options, new Clock(options.nanos, manifest.startNanos(), options.canExpire() || options.header().hasTime()));
        store = new Store(memory.pool(), manifest, expiration.isPossible, expiration.clock, new Removals() {
            @Override
            public void removed(long entry, RemovalCause cause) {
                notifyListener(entry, cause);
            }

            @Override
            public boolean partEnded() {
                boolean isWriting = behind == null || behind.thread.start();
                return notifications.deliverLater() || !isWriting;
            }

            @Override
            public void leaving(long entry, long hash) {
                if (behind != null) {
                    behind.leaving(entry, hash);
                }
            }
        }, this::leaving);
        codec = new EntryCodec<>(options.keys, options.values, store, options.header());
        notifications = new Notifications<>(options, codec, new Failures());
        pending = new Pending<>(store.index::lock);
        estimate = options.isEstimating ? new MissRatioEstimate(store) : null;
        through = options.writeThrough == null ? null : new WriteThrough<>(options.writeThrough, this);
        behind = options.writeBack == null ? null : new WriteBehind<>(options.writeBack, store, codec);
        unwritten = behind == null ? null : new UnwrittenChanges<>(this, behind);
    }

    private void leaving(long entry, long hash) {
        changing.accept(hash);
        if (behind != null) {
            behind.left(entry);
        }
    }

    /// Number of values; those that have expired may be included.
    long count() {
        return store.index.entries() + (behind == null ? 0 : behind.entriesBeside());
    }

    @Nullable V peek(K key) {
        KeyBytes bytes = keyBytes(key);
        V value = value(bytes);
        return value == null ? evictedValue(bytes) : value;
    }

    /// The bytes of the value of a key, on the heap, if its stripe is locked.
    ///
    /// @param entry address of the present entry, or 0
    @Nullable MemorySegment payload(KeyBytes key, long entry) {
        return entry != 0 ? codec.copy(entry) : behind == null ? null : behind.evictedPayload(key);
    }

    /// The value of a key, without counting.
    @Nullable V value(KeyBytes key) {
        MemorySegment bytes = peek(key, codec::copy);
        return bytes == null ? null : codec.value(bytes);
    }

    /// Calls a function with the address of the entry of a key, which must end soon: it holds memory.
    <R> @Nullable R peek(KeyBytes key, LongFunction<? extends @Nullable R> reader) {
        return store.peek(key.bytes, key.hash, reader);
    }

    /// Makes a change on condition that the value of a key equals an expected one.
    ///
    /// @param change makes it if a condition on the address of the present entry is met, and returns whether it did
    boolean ifEqual(K key, @Nullable V expected, Predicate<LongPredicate> change) {
        KeyBytes bytes = keyBytes(key);
        while (true) {
            MemorySegment entry = expected == null ? null : peek(bytes, codec::copy);
            MemorySegment present = entry == null ? evictedPayload(bytes) : entry;
            if (expected == null || present == null || !codec.isEqual(present, expected)) {
                return false;
            }
            if (change.test(found -> {
                MemorySegment now = found != 0 ? codec.payload(found) : behind == null ? null : behind.evictedPayload(bytes);
                return now != null && now.mismatch(present) == -1;
            })) {
                return true;
            }
        }
    }

    @Nullable V putIfAbsent(K key, V value, @Nullable Integer expiry) {
        KeyBytes bytes = keyBytes(key);
        while (!put(key, value, expiry, present -> present == 0 && (behind == null || behind.evictedPayload(bytes) == null), replaced)) {
            V present = peek(key);
            if (present != null) {
                return present;
            }
        }
        return null;
    }

    /// Adds or replaces a value, and writes it to the store that the cache has.
    ///
    /// @param expiry when it expires; null to apply the options of the cache
    /// @param isWanted is called with the address of the present entry, or 0, while no other thread changes it
    /// @param old is called with the address of the replaced entry
    /// @return whether the value was wanted
    boolean put(K key, V value, @Nullable Integer expiry, LongPredicate isWanted, LongConsumer old) {
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(value, "value");
        try {
            return change(key, value, expiry, isWanted, old);
        } finally {
            notifications.deliver();
        }
    }

    private boolean change(K key, V value, @Nullable Integer expiry, LongPredicate isWanted, LongConsumer old) {
        if (ALWAYS.equals(isWanted) && canPutDirectly() && putDirectly(key, value, expiry, old)) {
            return true;
        }
        KeyBytes bytes = keyBytes(key);
        if (unwritten != null) {
            int time = expiry == null ? expiryAfterWrite(key, value, bytes) : expiry;
            return pending.write(bytes, isWanted, turn -> unwritten.put(bytes, value, time, turn, old));
        }
        if (through != null) {
            return through.write(bytes, new CacheWriter.Change<>(key, value), isWanted, () -> putWritten(key, bytes, value, expiry, _ -> true, old));
        }
        return putWritten(key, bytes, value, expiry, isWanted, old);
    }

    /// Whether a put needs no more than the entry: no writer, no present entry, and no work on any key.
    private boolean canPutDirectly() {
        return !hasWriter() && !expiration.dependsOnPresent() && pending.isIdle();
    }

    /// Adds or replaces a value, unless work on a key has begun. It allocates nothing but the bytes of the key.
    ///
    /// @return whether none had begun
    private boolean putDirectly(K key, V value, @Nullable Integer expiry, LongConsumer old) {
        byte[] bytes = codec.bytes(key);
        int time = expiry == null ? expiration.afterWrite(key, value, null) : expiry;
        return put(bytes, store.hash(bytes), value, time, pending.whileIdle, old) != Outcome.UNWANTED;
    }

    private Outcome put(byte[] key, long hash, V value, int expiry, LongPredicate isWanted, LongConsumer old) {
        // Another serializer must not write while memory is held.
        MemorySegment payload = codec.isSoon ? null : codec.payload(value);
        int size = Math.addExact(codec.header.size(), payload == null ? codec.size(value) : (int) payload.byteSize());
        Outcome outcome = payload == null
                ? store.put(key, hash, size, expiry, isWanted, value, codec.writer, ObjectStore::nothing, old)
                : store.put(key, hash, size, expiry, isWanted, payload, codec.copier, ObjectStore::nothing, old);
        if (outcome == Outcome.ADDED) {
            count(hash, key.length, size);
        }
        return outcome;
    }

    /// Adds or replaces a value that the store has.
    boolean putWritten(K key, KeyBytes bytes, V value, @Nullable Integer expiry, LongPredicate isWanted, LongConsumer old) {
        int time = expiry == null ? expiryAfterWrite(key, value, bytes) : expiry;
        return pending.write(bytes, isWanted, turn -> put(bytes.bytes, bytes.hash, value, time, turn, old) != Outcome.UNWANTED);
    }

    private static void nothing() {}

    void count(long hash, int keySize, int valueSize) {
        puts.increment();
        if (estimate != null) {
            estimate.written(hash, keySize, valueSize);
        }
    }

    private int expiryAfterWrite(K key, V value, KeyBytes bytes) {
        Integer present = expiration.dependsOnPresent() ? peek(bytes, store.entries::expiry) : null;
        return expiration.afterWrite(key, value, present);
    }

    /// Removes a value, also from the store that the cache has.
    ///
    /// @param isWanted is called with the address of the present entry while no other thread changes it
    /// @param old is called with the address of the removed entry
    /// @return whether there was one
    boolean remove(K key, LongPredicate isWanted, LongConsumer old) {
        KeyBytes bytes = keyBytes(key);
        try {
            return remove(key, bytes, isWanted, old);
        } finally {
            notifications.deliver();
        }
    }

    private boolean remove(K key, KeyBytes bytes, LongPredicate isWanted, LongConsumer old) {
        pending.discard(bytes);
        if (estimate != null) {
            estimate.removed(bytes);
        }
        if (unwritten != null) {
            return pending.write(bytes, isWanted, turn -> unwritten.remove(bytes, turn, old));
        }
        if (through != null) {
            var wasThere = new AtomicBoolean();
            through.write(bytes, new CacheWriter.Change<>(key, null), isWanted, () -> {
                wasThere.setPlain(removeWritten(bytes, _ -> true, old));
                return true;
            });
            return wasThere.getPlain();
        }
        return pending.write(bytes, isWanted, turn -> removeWritten(bytes, turn, old));
    }

    boolean removeWritten(KeyBytes key, LongPredicate isWanted, LongConsumer old) {
        return store.remove(key.bytes, key.hash, isWanted, entry -> {
            old.accept(entry);
            notifyListener(entry, RemovalCause.EXPLICIT);
        });
    }

    void clear() {
        pending.discardAll();
        flush();
        try {
            store.clear();
        } finally {
            notifications.deliver();
        }
    }

    /// Writes what is not in the store yet.
    void flush() {
        if (behind != null) {
            behind.flush();
        }
    }

    /// Refuses changes, and writes what is not in the store yet.
    void close() {
        if (behind != null) {
            behind.close();
        }
    }

    int expiryAfter(Duration duration) {
        if (!expiration.isPossible) {
            throw new IllegalStateException("entries cannot expire: build the cache with expireAfter, expireAfterWrite, expireAfterAccess or variableExpiry");
        }
        return store.clock.after(Clock.nanos(duration));
    }

    /// Changes an entry by a function, which is called once; other writes of the key wait for it.
    ///
    /// @param onlyIfAbsent whether a present value stays, without a call of the function
    /// @param function returns the new value of the present one, null for none
    /// @return the new value
    @Nullable V compute(K key, boolean onlyIfAbsent, Function<@Nullable V, @Nullable V> function) {
        KeyBytes bytes = keyBytes(key);
        pending.checkNotRecursive(bytes);
        return pending.<@Nullable V>exclusively(bytes, () -> {
            store.clock.read();
            V present = value(bytes);
            V old = present == null ? evictedValue(bytes) : present;
            if (onlyIfAbsent && old != null) {
                return old;
            }
            V value = function.apply(old);
            if (value != null) {
                put(key, value, null, ALWAYS, replaced);
            } else if (old != null) {
                remove(key, ALWAYS, _ -> {});
            }
            return value;
        });
    }

    /// Changes when an entry expires, if it is in the cache.
    void setExpiry(K key, int expiry) {
        KeyBytes bytes = keyBytes(key);
        ReentrantLock lock = store.index.lock(bytes.hash);
        lock.lock();
        try {
            changing.accept(bytes.hash);
            peek(bytes, entry -> {
                store.setExpiry(entry, expiry);
                return null;
            });
        } finally {
            lock.unlock();
        }
    }

    /// The unwritten value of a key that has left the memory of the cache; null if there is none.
    @Nullable V evictedValue(KeyBytes key) {
        MemorySegment payload = evictedPayload(key);
        return payload == null ? null : codec.value(payload);
    }

    /// The same as bytes.
    @Nullable MemorySegment evictedPayload(KeyBytes key) {
        return behind == null ? null : store.<@Nullable MemorySegment>locked(key.bytes, key.hash, entry ->
                entry == 0 ? behind.evictedPayload(key) : store.isExpired(entry) ? null : codec.copy(entry));
    }

    boolean hasWriter() {
        return behind != null || through != null;
    }

    KeyBytes keyBytes(MemorySegment key) {
        byte[] bytes = key.toArray(ValueLayout.JAVA_BYTE);
        return new KeyBytes(bytes, store.hash(bytes));
    }

    KeyBytes keyBytes(K key) {
        Objects.requireNonNull(key, "key");
        byte[] bytes = codec.bytes(key);
        return new KeyBytes(bytes, store.hash(bytes));
    }

    private void notifyReplaced(long entry) {
        notifyListener(entry, store.isExpired(entry) ? RemovalCause.EXPIRED : RemovalCause.REPLACED);
    }

    void notifyListener(long entry, RemovalCause cause) {
        if (behind == null || !behind.isRemoval(entry)) {
            notifications.removed(entry, cause);
        }
    }
}
