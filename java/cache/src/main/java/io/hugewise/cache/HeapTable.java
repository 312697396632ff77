package io.hugewise.cache;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.ToLongFunction;
import org.jspecify.annotations.Nullable;

/// Deserialised values on the heap, of entries that are in the store, too: so one is dropped without a copy, and a
/// value that is replaced or removed in the store is removed here before, while the stripe of the index is locked.
///
/// A value is added when its key is read twice within the reads that the [Doorkeeper] remembers, about as many as
/// there are values. A key that is read less often would leave before its next read. If the table is full, or all
/// slots of the key are in use, the value replaces one of a few others that was read less often; otherwise it is not
/// added. Reading takes no lock.
///
/// @param <V> type of values
final class HeapTable<V> {
    private static final int WAYS = 8;
    /// Also the fewest sets, so that those of a lock stay the same when the table grows.
    private static final int LOCKS = 256;
    private static final int MOST_USES = 15;
    private static final int MOST_SETS = 1 << 24;
    private static final long MULTIPLIER = 0x5851_F42D_4C95_7F2DL;

    /// A value with the bytes of its key.
    static final class Node<V> {
        final byte[] key;
        final long hash;
        final V value;
        /// Bytes of the value in the store.
        final long bytes;
        final long weight;
        volatile int expiry;
        /// Reads since it was added, less those that kept it from being replaced. Concurrent ones may be lost.
        private int uses = 1;
        private int reads;

        Node(byte[] key, long hash, V value, long bytes, long weight, int expiry) {
            this.key = key;
            this.hash = hash;
            this.value = value;
            this.bytes = bytes;
            this.weight = weight;
            this.expiry = expiry;
        }

        /// Counts a read.
        ///
        /// @return whether the store should count it, too: for a part of the reads, so that it keeps the entry
        boolean read() {
            if (uses < MOST_USES) {
                uses++;
            }
            int count = ++reads;
            return (count & count - 1) == 0 || (count & 63) == 0;
        }
    }

    /// Hashes and values of all slots; a hash without a value is free.
    private static final class Table<V> {
        final long[] hashes;
        final AtomicReferenceArray<@Nullable Node<V>> nodes;

        Table(int sets) {
            hashes = new long[sets * WAYS];
            nodes = new AtomicReferenceArray<@Nullable Node<V>>(sets * WAYS);
        }

        int first(long hash) {
            return ((int) hash & hashes.length / WAYS - 1) * WAYS;
        }

        void set(int slot, @Nullable Node<V> node) {
            hashes[slot] = node == null ? 0 : node.hash;
            nodes.set(slot, node);
        }
    }

    private final ToLongFunction<? super V> weigher;
    private final long maximumWeight;
    private final Object[] locks = new Object[LOCKS];
    private final AtomicLong weight = new AtomicLong();
    private final Counter count = new Counter();
    private volatile Doorkeeper doorkeeper = new Doorkeeper(LOCKS * WAYS / 2);
    private volatile Table<V> table = new Table<>(LOCKS);

    HeapTable(long maximumWeight, ToLongFunction<? super V> weigher) {
        this.maximumWeight = maximumWeight;
        this.weigher = weigher;
        Arrays.setAll(locks, _ -> new Object());
    }

    long weight() {
        return weight.get();
    }

    long entries() {
        return count.sum();
    }

    long weight(V value) {
        long of = weigher.applyAsLong(value);
        if (of < 0) {
            throw new IllegalArgumentException("the weight of a value is 0 or more, not " + of);
        }
        return of;
    }

    /// Finds the value of a key.
    @Nullable Node<V> get(byte[] key, long hash) {
        Table<V> current = table;
        int first = current.first(hash);
        for (int slot = first; slot < first + WAYS; slot++) {
            if (current.hashes[slot] == hash) {
                Node<V> node = current.nodes.get(slot);
                if (node != null && node.hash == hash && Arrays.equals(node.key, key)) {
                    return node;
                }
            }
        }
        return null;
    }

    /// Whether the value of a key that was read in the store should be added.
    boolean isWanted(long hash) {
        return doorkeeper.isSecond(hash);
    }

    /// Adds a value, unless those that it could replace were read more often. The caller holds the lock of the index
    /// for this hash, and the store has the value.
    void add(Node<V> node) {
        if (node.weight > maximumWeight) {
            return;
        }
        boolean isAdded = false;
        weight.addAndGet(node.weight);
        try {
            isAdded = tryAdd(node);
        } finally {
            if (!isAdded) {
                weight.addAndGet(-node.weight);
            }
        }
    }

    private boolean tryAdd(Node<V> node) {
        boolean hasRoom = true;
        for (long seed = node.hash; hasRoom && weight.get() > maximumWeight; seed = seed * MULTIPLIER + 1) {
            Node<V> victim = leastUsed((int) (seed >>> 32));
            if (victim == null || !wins(node, victim)) {
                hasRoom = false;
            } else {
                removeLocked(victim.hash);
            }
        }
        int slots = table.hashes.length;
        if (hasRoom && isSetFull(node.hash) && entries() > slots / 2) {
            grow(slots / WAYS);
        }
        synchronized (lock(node.hash)) {
            return hasRoom && isPut(node);
        }
    }

    private Object lock(long hash) {
        return locks[(int) hash & LOCKS - 1];
    }

    /// Whether a new value replaces another one, which otherwise loses a use.
    private static <V> boolean wins(Node<V> node, Node<V> victim) {
        if (victim.uses <= node.uses) {
            return true;
        }
        victim.uses--;
        return false;
    }

    /// The value that was read least often, of the first ones from a slot on.
    private @Nullable Node<V> leastUsed(int from) {
        Table<V> current = table;
        Node<V> least = null;
        int seen = 0;
        for (int i = 0; i < current.hashes.length && seen < WAYS; i++) {
            Node<V> node = current.nodes.get(from + i & current.hashes.length - 1);
            if (node != null) {
                seen++;
                least = least == null || node.uses < least.uses ? node : least;
            }
        }
        return least;
    }

    private boolean isSetFull(long hash) {
        Table<V> current = table;
        int used = 0;
        for (int slot = current.first(hash), i = 0; i < WAYS; i++) {
            used += current.nodes.get(slot + i) == null ? 0 : 1;
        }
        return used == WAYS;
    }

    /// Puts a value into a slot, if one is free or has a value that it replaces.
    private boolean isPut(Node<V> node) {
        Table<V> current = table;
        int first = current.first(node.hash);
        int place = first;
        for (int slot = first; slot < first + WAYS; slot++) {
            Node<V> other = current.nodes.get(slot);
            if (other != null && other.hash == node.hash) {
                place = slot;
                break;
            }
            place = uses(other) < uses(current.nodes.get(place)) ? slot : place;
        }
        Node<V> before = current.nodes.get(place);
        if (before != null && before.hash != node.hash && !wins(node, before)) {
            return false;
        }
        if (before == null) {
            count.add(1);
        } else {
            weight.addAndGet(-before.weight);
        }
        current.set(place, node);
        return true;
    }

    /// Uses of the value in a slot; -1 if it is free.
    private static int uses(@Nullable Node<?> node) {
        return node == null ? -1 : node.uses;
    }

    /// Removes the value of a hash. The caller holds the lock of the index for this hash.
    void remove(long hash) {
        Table<V> current = table;
        int first = current.first(hash);
        for (int slot = first; slot < first + WAYS; slot++) {
            if (current.hashes[slot] == hash) {
                removeLocked(hash);
                return;
            }
        }
    }

    private void removeLocked(long hash) {
        synchronized (lock(hash)) {
            Table<V> current = table;
            int first = current.first(hash);
            for (int slot = first; slot < first + WAYS; slot++) {
                Node<V> node = current.nodes.get(slot);
                if (node != null && node.hash == hash) {
                    current.set(slot, null);
                    weight.addAndGet(-node.weight);
                    count.add(-1);
                }
            }
        }
    }

    // --- Growing -----------------------------------------------------------------------------------

    private synchronized void grow(int sets) {
        if (table.hashes.length / WAYS == sets && sets < MOST_SETS) {
            doorkeeper = new Doorkeeper(sets * WAYS);
            grow(new Table<>(2 * sets), 0);
        }
    }

    /// Takes all locks, one inside of the other, and moves all values to another table.
    private void grow(Table<V> larger, int lock) {
        if (lock < LOCKS) {
            synchronized (locks[lock]) {
                grow(larger, lock + 1);
            }
            return;
        }
        Table<V> old = table;
        for (int slot = 0; slot < old.hashes.length; slot++) {
            Node<V> node = old.nodes.get(slot);
            if (node != null) {
                int to = larger.first(node.hash);
                while (larger.nodes.get(to) != null) {
                    to++;
                }
                larger.set(to, node);
            }
        }
        table = larger;
        // Those who still read the old table must not find what is removed later.
        for (int slot = 0; slot < old.hashes.length; slot++) {
            old.nodes.set(slot, null);
        }
    }
}
