package io.hugewise.cache;

import io.hugewise.cache.work.Work;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongFunction;
import java.util.function.LongPredicate;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/// Work on keys that is under way: loads, whose result is discarded if the key is written during that time, and
/// changes, which writes of the same key wait for.
///
/// Both begin under the lock that a write of the key holds, so a write that does not see them is visible to them.
final class Pending<V> {
    private final ConcurrentMap<KeyBytes, Load<V>> loads = new ConcurrentHashMap<>();
    private final ConcurrentMap<KeyBytes, Change> changes = new ConcurrentHashMap<>();
    private final AtomicLong writes = new AtomicLong();
    private final LongFunction<ReentrantLock> locks;
    /// The turn of any write: whether there is no work on any key.
    final LongPredicate whileIdle = _ -> isIdle();

    /// @param locks returns the lock that a write of a key holds, by the key's hash
    Pending(LongFunction<ReentrantLock> locks) {
        this.locks = locks;
    }

    /// A load that other threads wait for.
    static final class Load<V> extends Work<@Nullable V> {
        final KeyBytes key;
        /// The key was written since the load began.
        volatile boolean isDiscarded;
        private final CompletableFuture<@Nullable Void> end = new CompletableFuture<>();

        Load(KeyBytes key) {
            this.key = key;
        }

        /// A future of the result.
        @SuppressWarnings("NullAway") // It does not see that values of the field's type may be null.
        CompletableFuture<@Nullable V> future() {
            return end.thenApply(_ -> result());
        }

        @Override
        protected void hasJustEnded() {
            end.complete(null);
        }
    }

    /// A change by a function, which excludes other writes of its key.
    private static final class Change extends Work<Boolean> {}

    boolean isIdle() {
        return changes.isEmpty() && loads.isEmpty();
    }

    // --- Loads -------------------------------------------------------------------------------------

    /// Begins a load, unless one is under way whose result will be that of a load that begins now.
    ///
    /// @return the one that is under way; null if `own` has begun
    @Nullable Load<V> begin(Load<V> own) {
        ReentrantLock lock = locks.apply(own.key.hash);
        lock.lock();
        try {
            while (true) {
                Load<V> other = loads.putIfAbsent(own.key, own);
                if (other == null || !other.isDiscarded) {
                    return other;
                }
                // It may end now, without the lock: then its result is older than the write that discarded it.
                if (loads.replace(own.key, other, own)) {
                    return null;
                }
            }
        } finally {
            lock.unlock();
        }
    }

    /// Ends a load. Its key can be loaded again before its readers are notified, which may do so. It throws nothing.
    void end(Load<V> own, @Nullable V result) {
        Work.remove(loads, own.key, own);
        own.end(result);
    }

    /// Ends a load, which may not have begun, by an error. It throws nothing.
    void fail(Load<V> own, Throwable error) {
        Work.remove(loads, own.key, own);
        own.fail(error);
    }

    void discard(KeyBytes key) {
        if (loads.isEmpty()) {
            return;
        }
        writes.incrementAndGet();
        Load<V> load = loads.get(key);
        if (load != null) {
            load.isDiscarded = true;
        }
    }

    /// Number of writes and removals of any key during loads.
    long writes() {
        return writes.get();
    }

    void discardAll() {
        writes.incrementAndGet();
        loads.values().forEach(load -> load.isDiscarded = true);
    }

    // --- Changes -----------------------------------------------------------------------------------

    /// Runs a function while other threads cannot change a key.
    <R extends @Nullable Object> R exclusively(KeyBytes key, Supplier<R> function) {
        if (isOwner(key)) {
            return function.get();
        }
        Change own = exclude(key);
        try {
            return function.get();
        } finally {
            end(key, own);
        }
    }

    private boolean isOwner(KeyBytes key) {
        Change change = changes.get(key);
        return change != null && change.isOwn();
    }

    void checkNotRecursive(KeyBytes key) {
        if (isOwner(key)) {
            throw new IllegalStateException("a function that changes an entry must not change the same entry by another function");
        }
    }

    private Change exclude(KeyBytes key) {
        var own = new Change();
        own.tryOwn();
        ReentrantLock lock = locks.apply(key.hash);
        try {
            while (true) {
                Change other;
                lock.lock();
                try {
                    other = changes.putIfAbsent(key, own);
                } finally {
                    lock.unlock();
                }
                if (other == null) {
                    return own;
                }
                other.await();
            }
        } catch (Throwable error) {
            // Without heap memory, the map may have it.
            end(key, own);
            throw error;
        }
    }

    private void end(KeyBytes key, Change own) {
        Work.remove(changes, key, own);
        own.end(true);
    }

    /// Runs a write of a key when no other thread changes it.
    ///
    /// @param isWanted a condition on the address of the present entry, or 0
    /// @param write asks its turn, while it holds the lock, whether to write
    /// @return the result of the write
    boolean write(KeyBytes key, LongPredicate isWanted, Predicate<LongPredicate> write) {
        while (true) {
            var turn = new Turn(key, isWanted);
            boolean isWritten = write.test(turn);
            Change other = turn.other;
            if (other == null) {
                return isWritten;
            }
            other.await();
        }
    }

    /// An attempt to write a key.
    private final class Turn implements LongPredicate {
        private final KeyBytes key;
        private final LongPredicate isWanted;
        private @Nullable Change other;

        Turn(KeyBytes key, LongPredicate isWanted) {
            this.key = key;
            this.isWanted = isWanted;
        }

        /// Whether to write: no other thread changes the key, and the present entry satisfies the condition.
        @Override
        public boolean test(long present) {
            Change change = changes.isEmpty() ? null : changes.get(key);
            other = change == null || change.isOwn() ? null : change;
            if (other != null || !isWanted.test(present)) {
                return false;
            }
            discard(key);
            return true;
        }
    }
}
