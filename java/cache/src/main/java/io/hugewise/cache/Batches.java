package io.hugewise.cache;

import io.hugewise.cache.CacheWriter.Change;
import io.hugewise.cache.EvictedChanges.Evicted;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.List;
import org.jspecify.annotations.Nullable;

/// Writes the newest changes of keys to the store of a cache, in batches. One thread at a time may call it.
final class Batches<K, V> {
    private static final long FIRST_PAUSE_MILLIS = 5;
    private static final long LONGEST_PAUSE_MILLIS = 1000;

    private final WriteBack<K, V> options;
    private final Store store;
    private final EntryCodec<K, V> codec;
    private final EvictedChanges evicted;
    private final Refusals refusals;
    private final WriteBehind<K, V> owner;
    /// Changes of the next batch, at most.
    private int batch;
    /// Batches that were written.
    private long written;
    /// Why the last batch could not be written; `null` if it was.
    volatile @Nullable Throwable failure;

    Batches(WriteBack<K, V> options, Store store, EntryCodec<K, V> codec, EvictedChanges evicted, Refusals refusals, WriteBehind<K, V> owner) {
        this.options = options;
        this.store = store;
        this.codec = codec;
        this.evicted = evicted;
        this.refusals = refusals;
        this.owner = owner;
        this.batch = options.batch;
    }

    /// Writes the newest changes of keys, in smaller batches after a failure, until all are written, or set aside because the
    /// store refuses them alone.
    void write(Deque<KeyBytes> open) {
        long pause = FIRST_PAUSE_MILLIS;
        while (!open.isEmpty() && !owner.isEnded()) {
            List<KeyBytes> part = open.stream().limit(batch).toList();
            if (tryWrite(part)) {
                part.forEach(_ -> open.removeFirst());
                part.forEach(refusals::written);
                written++;
                batch = Math.min(options.batch, 2 * batch);
                pause = FIRST_PAUSE_MILLIS;
            } else {
                if (part.size() == 1) {
                    KeyBytes alone = open.removeFirst();
                    refuse(alone);
                    if (refusals.isAside(alone)) {
                        continue;
                    }
                    open.add(alone);
                }
                batch = Math.max(1, part.size() / 2);
                owner.pause(pause);
                pause = part.size() > 1 ? pause : Math.min(2 * pause, LONGEST_PAUSE_MILLIS);
            }
        }
    }

    /// Notes that the change of a key failed alone, and asks what becomes of it if others are written.
    private void refuse(KeyBytes key) {
        int attempts = refusals.failed(key, written, options.attempts);
        Versioned<K, V> change = attempts == 0 ? null : newest(key);
        Throwable error = failure;
        if (change == null || error == null) {
            return;
        }
        RefusedChange.Decision decision = RefusedChange.Decision.KEEP;
        try {
            decision = options.refused.refused(change.change, attempts, error);
        } finally {
            System.getLogger("io.hugewise.cache").log(System.Logger.Level.WARNING,
                    "the store refuses the change of the key " + change.change.key() + ", which was tried " + attempts + " times: " + decision, error);
        }
        if (decision == RefusedChange.Decision.DROP) {
            drop(change);
            refusals.written(key);
        }
    }

    private void drop(Versioned<K, V> change) {
        KeyBytes key = change.key;
        written(change);
        store.locked(key.bytes, key.hash, entry -> {
            if (entry != 0 && Memory.getLong(store.valueAddress(entry)) == (change.state() & ~WriteBehind.UNWRITTEN)) {
                store.removeLocked(entry, key.hash);
            }
            return true;
        });
    }

    /// A change with the version that it has in the cache.
    private record Versioned<K, V>(KeyBytes key, long state, Change<K, V> change) {}

    private boolean tryWrite(List<KeyBytes> part) {
        List<Versioned<K, V>> newest = new ArrayList<>(part.size());
        try {
            for (KeyBytes key : part) {
                Versioned<K, V> change = newest(key);
                if (change != null) {
                    newest.add(change);
                }
            }
            Comparator<? super K> order = options.order;
            if (order != null) {
                newest.sort((one, other) -> order.compare(one.change.key(), other.change.key()));
            }
            if (!newest.isEmpty()) {
                options.writer.writeAll(newest.stream().map(Versioned::change).toList());
            }
        } catch (Throwable error) {
            failure = error;
            return false;
        }
        failure = null;
        newest.forEach(this::written);
        return true;
    }

    private @Nullable Versioned<K, V> newest(KeyBytes key) {
        Evicted newest = store.<@Nullable Evicted>locked(key.bytes, key.hash, entry -> {
            long state = entry == 0 ? 0 : Memory.getLong(store.valueAddress(entry));
            return (state & WriteBehind.UNWRITTEN) != 0 ? new Evicted(state, codec.copy(entry), Clock.NEVER) : evicted.get(key);
        });
        return newest == null ? null : versioned(key, newest.state(), newest.payload());
    }

    private Versioned<K, V> versioned(KeyBytes key, long state, MemorySegment payload) {
        return new Versioned<>(key, state, new Change<>(codec.key(key), (state & WriteBehind.REMOVAL) != 0 ? null : codec.value(payload)));
    }

    private void written(Versioned<K, V> change) {
        KeyBytes key = change.key;
        store.locked(key.bytes, key.hash, entry -> {
            if (entry != 0 && Memory.getLong(store.valueAddress(entry)) == change.state()) {
                Memory.setLong(store.valueAddress(entry), change.state() & ~WriteBehind.UNWRITTEN);
            }
            Evicted left = evicted.get(key);
            if (left != null && left.state() == change.state()) {
                evicted.remove(key);
            }
            return true;
        });
    }
}
