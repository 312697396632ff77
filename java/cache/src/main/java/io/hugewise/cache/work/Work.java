package io.hugewise.cache.work;

import io.hugewise.memory.internal.Pause;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/// Work on a key by one thread, whose end other threads wait for, unless they would wait for each other.
///
/// @param <R> type of its result
public abstract class Work<R extends @Nullable Object> {
    /// What threads wait for, in all caches.
    private static final ConcurrentMap<Thread, Work<?>> WAITS = new ConcurrentHashMap<>();
    /// Time between two attempts to remove a mapping without heap memory.
    private static final long RETRY_NANOS = 1_000_000;

    /// What threads wait for. Unlike that of a future, its end takes no memory of the heap.
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile @Nullable R result;
    private volatile @Nullable Throwable failure;
    private final AtomicReference<@Nullable Thread> owner = new AtomicReference<>();

    /// Creates one that no thread has begun.
    protected Work() {}

    /// Begins it by the calling thread.
    ///
    /// @return whether no thread had begun it
    public final boolean tryOwn() {
        return owner.compareAndSet(null, Thread.currentThread());
    }

    /// Continues what another thread has begun, which has ended.
    public final void takeOver() {
        owner.set(Thread.currentThread());
    }

    /// {@return whether the calling thread has begun it}
    public final boolean isOwn() {
        return Thread.currentThread().equals(owner.get());
    }

    /// Ends it, unless it has ended. It throws nothing: threads that wait for it go on, also without heap memory.
    ///
    /// @param value its result
    public final void end(R value) {
        if (!hasEnded()) {
            result = value;
            ended.countDown();
            try {
                hasJustEnded();
            } catch (OutOfMemoryError _) {
                // Threads that wait go on already.
            }
        }
    }

    /// Ends it by an error in the same way.
    ///
    /// @param error the reason
    @SuppressWarnings("NullAway") // The result is not read.
    public final void fail(Throwable error) {
        if (!hasEnded()) {
            failure = error;
            end(null);
        }
    }

    /// Does what follows its end.
    protected void hasJustEnded() {}

    private boolean hasEnded() {
        return ended.getCount() == 0;
    }

    /// Returns its result after its end.
    ///
    /// @return the result
    /// @throws CompletionException if it failed, with the reason as its cause
    @SuppressWarnings("NullAway") // It was set.
    protected final R result() {
        Throwable error = failure;
        if (error != null) {
            throw new CompletionException(error);
        }
        return result;
    }

    /// Waits for its end.
    ///
    /// @return its result
    /// @throws CompletionException if it failed, with the reason as its cause, or the calling thread was interrupted
    /// @throws IllegalStateException if its thread waits for the calling one
    public final R await() {
        beginWait();
        try {
            ended.await();
            return result();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new CompletionException("the thread was interrupted while it waited for the work of another one on the same key", error);
        } finally {
            endWait();
        }
    }

    /// Notes that the calling thread waits for its owner, until [#endWait].
    ///
    /// @throws IllegalStateException if its owner waits for the calling thread, which does not wait then
    public final void beginWait() {
        Thread current = Thread.currentThread();
        boolean isWaiting = false;
        try {
            WAITS.put(current, this);
            // Of threads that wait for each other, the last one sees it.
            List<Work<?>> circle = waits(current);
            isWaiting = circle.isEmpty() || !circle.equals(waits(current));
        } finally {
            if (!isWaiting) {
                endWait();
            }
        }
        if (!isWaiting) {
            throw new IllegalStateException("recursive work on a key: a function of a cache would wait for itself, by this thread or by others");
        }
    }

    /// Notes that the calling thread does not wait any more.
    public final void endWait() {
        remove(WAITS, Thread.currentThread(), this);
    }

    /// Removes a mapping. It throws nothing: a map that grows may need heap memory for that, and if there is none, it is
    /// tried again.
    ///
    /// @param from the map
    /// @param key the key
    /// @param work the value that is removed
    /// @param <K> type of keys
    /// @param <W> type of values
    public static <K, W extends Work<?>> void remove(ConcurrentMap<K, W> from, K key, Work<?> work) {
        while (true) {
            try {
                from.remove(key, work);
                return;
            } catch (OutOfMemoryError _) {
                Pause.nanos(RETRY_NANOS);
            }
        }
    }

    /// The works that wait for each other up to one of a thread; empty if there is none. Of two equal answers, all works
    /// waited at the same moment.
    private List<Work<?>> waits(Thread thread) {
        List<Work<?>> waits = new ArrayList<>();
        for (Work<?> work = this; work != null && !work.hasEnded() && !waits.contains(work); ) {
            waits.add(work);
            Thread by = work.owner.get();
            if (thread.equals(by)) {
                return waits;
            }
            work = by == null ? null : WAITS.get(by);
        }
        return List.of();
    }
}
