package io.hugewise.cache;

import io.hugewise.cache.EvictedChanges.Evicted;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/// Writes changes to the store of a cache later, by one thread, so those of a key are written in their order.
///
/// The newest change of a key is its entry, whose state has a version and whether it is unwritten; a removed key has an
/// entry that has expired. When such an entry is evicted, the change moves to the heap. Both places are changed only
/// under the lock of the key's stripe, so a change is always in one of them. After a batch, only entries that still have
/// the version that was written are marked as written.
final class WriteBehind<K, V> {
    static final long UNWRITTEN = 1;
    static final long REMOVAL = 2;
    private static final int VERSION_SHIFT = 2;
    private static final String NO_ROOM = "the change was not made: older ones could not be written";
    private static final long LONGEST_SLEEP_MILLIS = 100;
    /// Longest time in which a thread that waits for the store is not notified. Thousands may wait.
    private static final long LONGEST_WAIT_MILLIS = 5000;
    private static final long IDLE_NANOS = TimeUnit.SECONDS.toNanos(1);
    /// Most bytes of evicted changes at which writes are admitted.
    private static final long MOST_EVICTED_BYTES = 16 << 20;

    private final WriteBack<K, V> options;
    private final Store store;
    private final EntryCodec<K, V> codec;
    private final UnwrittenKeys keys = new UnwrittenKeys();
    private final EvictedChanges evicted = new EvictedChanges();
    /// Entries that are removals.
    private final AtomicLong removals = new AtomicLong();
    final Refusals refusals = new Refusals();
    private final AtomicLong versions = new AtomicLong();
    /// Calls that change entries.
    private final Pins calls = new Pins();
    private final Object monitor = new Object();
    /// Of threads that wait for room, in their order. Only the one that has its turn is notified.
    private final ReentrantLock turns = new ReentrantLock(true);
    private final Batches<K, V> batches;
    final WritingThread thread = new WritingThread(monitor, this::hasWork, this::isEnded, this::writeNext);
    private volatile boolean isClosing;
    private volatile boolean isEnded;
    // Under the monitor:
    private long requested;
    private long done;

    WriteBehind(WriteBack<K, V> options, Store store, EntryCodec<K, V> codec) {
        this.options = options;
        this.store = store;
        this.codec = codec;
        this.batches = new Batches<>(options, store, codec, evicted, refusals, this);
    }

    // --- Changes -----------------------------------------------------------------------------------

    /// Begins a change, when there is room for it.
    ///
    /// @return the pin for [#end]
    /// @throws UnwrittenException if there is none because the store fails
    int begin() {
        admit();
        int pin = calls.pin();
        if (isClosing) {
            calls.unpin(pin);
            throw new IllegalStateException("the cache is closed");
        }
        return pin;
    }

    void end(int pin) {
        calls.unpin(pin);
    }

    long newState(boolean isRemoval) {
        return versions.incrementAndGet() << VERSION_SHIFT | (isRemoval ? REMOVAL : 0) | UNWRITTEN;
    }

    /// Notes that a change is being made. The caller holds the lock of the key's stripe until it is made, so the thread that
    /// writes finds it; later, the heap could have no memory for the key.
    void begins(KeyBytes key) {
        keys.add(key.bytes, System.nanoTime());
    }

    /// Notes that the change has an entry. The caller holds the lock still.
    void published(KeyBytes key, boolean isRemoval) {
        if (isRemoval) {
            removals.incrementAndGet();
        }
        if (!evicted.isEmpty()) {
            evicted.remove(key);
        }
    }

    /// Notes that a change is complete.
    void changed() {
        thread.start();
        if (isCrowded()) {
            wake();
        }
    }

    /// Takes a change for which no memory was free. The caller holds the lock of its stripe.
    void take(KeyBytes key, long state, MemorySegment payload, int expiry) {
        evicted.put(key, new Evicted(state, payload, expiry));
        wake();
    }

    /// Takes the change of an entry that is evicted. The caller holds the lock of its stripe.
    void leaving(long entry, long hash) {
        long state = Memory.getLong(store.valueAddress(entry));
        if ((state & UNWRITTEN) != 0) {
            byte[] key = store.entries.keyMemory(entry).toArray(ValueLayout.JAVA_BYTE);
            take(new KeyBytes(key, hash), state, codec.copy(entry), store.entries.expiry(entry));
        }
    }

    /// Whether an entry is a removal, not a value that listeners know.
    boolean isRemoval(long entry) {
        return (Memory.getLong(store.valueAddress(entry)) & REMOVAL) != 0;
    }

    /// The bytes of the unwritten value of a key whose entry was evicted; null if there is none.
    @Nullable MemorySegment evictedPayload(KeyBytes key) {
        Evicted change = evicted.isEmpty() ? null : evicted.get(key);
        if (change == null || change.isRemoval() || Clock.isPast(change.expiry(), store.clock.now())) {
            return null;
        }
        return change.payload();
    }

    /// Notes that an entry is being replaced or removed. The caller holds the lock of its stripe.
    void left(long entry) {
        if (isRemoval(entry)) {
            removals.decrementAndGet();
        }
    }

    /// Number of values that have no entry, less that of entries that are removals.
    long entriesBeside() {
        return evicted.values() - removals.get();
    }

    /// Unwritten values that have no entry, by their keys' bytes.
    Map<KeyBytes, MemorySegment> evictedPayloads() {
        store.clock.read();
        return evicted.payloads(change -> !Clock.isPast(change.expiry(), store.clock.now()));
    }

    /// Waits until the store has the last change of a key.
    void awaitWritten(KeyBytes key) {
        boolean isUnwritten = store.locked(key.bytes, key.hash, entry ->
                (entry != 0 && (Memory.getLong(store.valueAddress(entry)) & UNWRITTEN) != 0) || evicted.get(key) != null);
        if (isUnwritten) {
            flush();
        }
    }

    // --- Back-pressure -----------------------------------------------------------------------------

    private void admit() {
        if (hasRoom()) {
            return;
        }
        long end = System.nanoTime() + options.patienceNanos;
        boolean isTurn = false;
        while (!isTurn) {
            // Until the end: to leave the queue and join it again takes the longer, the more threads wait.
            isTurn = await(end, Long.MAX_VALUE, NO_ROOM, millis -> turns.tryLock(millis, TimeUnit.MILLISECONDS));
        }
        try {
            synchronized (monitor) {
                while (!hasRoom()) {
                    monitor.notifyAll();
                    awaitNotification(end, NO_ROOM);
                }
            }
        } finally {
            turns.unlock();
        }
    }

    private boolean hasRoom() {
        return isEnded || (unwritten() < options.maximumUnwritten && evicted.bytes() <= MOST_EVICTED_BYTES
                && keys.age(System.nanoTime()) < options.windowNanos);
    }

    /// Changes that the store does not have, each write of a key counted.
    long unwritten() {
        return keys.count() + refusals.size();
    }

    private boolean isCrowded() {
        return keys.count() >= options.maximumUnwritten / 2;
    }

    private interface Wait {
        boolean forMillis(long millis) throws InterruptedException;
    }

    /// Waits for a notification. The caller holds the monitor, and checks its condition again.
    @SuppressWarnings("WaitNotInLoop")
    private void awaitNotification(long end, String message) {
        var _ = await(end, LONGEST_WAIT_MILLIS, message, millis -> {
            monitor.wait(millis);
            return true;
        });
    }

    /// Waits for the store.
    ///
    /// @param most milliseconds of this call
    /// @return what the wait returns
    private boolean await(long end, long most, String message, Wait wait) {
        thread.start();
        if (thread.isCurrent()) {
            throw new IllegalStateException("the store of a cache must not wait for its own changes");
        }
        long millis = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
        if (millis <= 0) {
            throw new UnwrittenException(message + ": the store is failing or too slow", batches.failure);
        }
        // The store may wait for a change that the calling thread makes.
        thread.work.beginWait();
        try {
            return wait.forMillis(Math.min(millis, most));
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new UnwrittenException(message + ": the thread was interrupted", error);
        } finally {
            thread.work.endWait();
        }
    }

    /// Waits until all changes are written that are complete now.
    void flush() {
        long end = System.nanoTime() + options.patienceNanos;
        do {
            synchronized (monitor) {
                if (!thread.isRunning() && isIdle()) {
                    return;
                }
                long own = ++requested;
                monitor.notifyAll();
                while (done < own && !isEnded) {
                    awaitNotification(end, "changes are not written yet, and stay in the cache");
                }
                if (refusals.size() > 0 && !isEnded) {
                    awaitNotification(end, "the store refuses changes, which stay in the cache");
                }
            }
        } while (refusals.size() > 0 && !isEnded);
    }

    /// Refuses changes, and writes all.
    ///
    /// @throws UnwrittenException if they could not be written; changes are possible again then
    synchronized void close() {
        if (isEnded) {
            return;
        }
        isClosing = true;
        try {
            if (!calls.await(options.patienceNanos)) {
                throw new UnwrittenException("changes are still being made", null);
            }
            flush();
        } catch (Throwable error) {
            isClosing = false;
            throw error;
        }
        isEnded = true;
        thread.awaitEnd(this::wake);
    }

    private void wake() {
        synchronized (monitor) {
            monitor.notifyAll();
        }
    }

    // --- The thread that writes --------------------------------------------------------------------

    private boolean hasWork() {
        return done < requested || !isIdle();
    }

    /// Whether the store has all changes that are complete.
    private boolean isIdle() {
        return keys.count() == 0 && evicted.isEmpty() && refusals.size() == 0;
    }

    /// Writes what is due next; returns without it when there has been nothing to write for some time.
    private void writeNext() {
        long idleSince = System.nanoTime();
        long request;
        synchronized (monitor) {
            while (!isEnded && done == requested && !isDue()) {
                long now = System.nanoTime();
                idleSince = isIdle() ? idleSince : now;
                if (now - idleSince >= IDLE_NANOS) {
                    return;
                }
                sleep(sleepMillis());
            }
            request = requested;
        }
        write(request);
        synchronized (monitor) {
            done = isEnded ? done : request;
            monitor.notifyAll();
        }
    }

    private boolean isDue() {
        return isCrowded() || evicted.size() > refusals.size() || refusals.isDue(System.nanoTime()) || keys.age(System.nanoTime()) >= options.windowNanos / 2;
    }

    private long sleepMillis() {
        return Math.clamp(TimeUnit.NANOSECONDS.toMillis(options.windowNanos / 8), 1, LONGEST_SLEEP_MILLIS);
    }

    boolean isEnded() {
        return isEnded;
    }

    /// Waits, but not longer than until the next change or the end.
    void pause(long millis) {
        synchronized (monitor) {
            sleep(millis);
        }
    }

    /// Waits for a notification. The caller holds the monitor.
    @SuppressWarnings("WaitNotInLoop")
    private void sleep(long millis) {
        try {
            monitor.wait(millis);
        } catch (InterruptedException _) {
            // Only the end of the cache ends this thread.
        }
    }

    /// Writes what is due; all that is complete now if a flush was requested.
    private void write(long request) {
        boolean isFlush;
        synchronized (monitor) {
            isFlush = request > done;
        }
        long until = isFlush || isCrowded() ? System.nanoTime() : System.nanoTime() - options.windowNanos / 2;
        long last = keys.added();
        Iterable<KeyBytes> retried = isFlush || refusals.isDue(System.nanoTime()) ? refusals.retry() : List.of();
        // Others may be evicted during that time, without an end.
        int evictedBatches = evicted.size() / options.batch + 1;
        Set<KeyBytes> changed = new LinkedHashSet<>();
        do {
            evictedBatches--;
            changed.clear();
            retried.forEach(changed::add);
            retried = List.of();
            UnwrittenKeys.Reader reader = keys.reader(until);
            read(reader, changed);
            evicted.keys(options.batch, changed);
            long now = System.nanoTime();
            changed.removeIf(key -> refusals.isAside(key, now));
            batches.write(new ArrayDeque<>(changed));
            keys.drop(isEnded ? 0 : reader.count());
            if (hasRoom()) {
                wake();
            }
        } while (!isEnded && ((evictedBatches > 0 && !evicted.isEmpty()) || (!changed.isEmpty() && keys.taken() < last)));
    }

    /// Reads keys until there are enough different ones for a batch.
    private void read(UnwrittenKeys.Reader reader, Set<KeyBytes> changed) {
        List<byte[]> read;
        do {
            read = reader.next(options.batch - changed.size());
            read.forEach(key -> changed.add(new KeyBytes(key, store.hash(key))));
        } while (!read.isEmpty());
    }
}
