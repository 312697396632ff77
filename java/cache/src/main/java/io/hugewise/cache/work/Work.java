package io.hugewise.cache.work;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/// Work on a key by one thread, whose end other threads wait for, unless they would wait for each other.
///
/// @param <R> type of its result
public abstract class Work<R extends @Nullable Object> {
    /// What threads wait for, in all caches.
    private static final ConcurrentMap<Thread, Work<?>> WAITS = new ConcurrentHashMap<>();

    /// Completed at its end.
    public final CompletableFuture<R> result = new CompletableFuture<>();
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

    /// {@return whether the calling thread has begun it}
    public final boolean isOwn() {
        return Thread.currentThread().equals(owner.get());
    }

    /// Ends it by an error, unless it has ended. This takes no memory of the heap: threads that wait for it go on.
    ///
    /// @param error the reason
    @SuppressWarnings("NullAway") // The result is not read.
    public final void fail(Throwable error) {
        if (!result.isDone()) {
            failure = error;
            result.complete(null);
        }
    }

    /// Returns its result after its end.
    ///
    /// @param ended what it was completed with
    /// @return the same
    /// @throws CompletionException if it failed, with the reason as its cause
    protected final R checked(R ended) {
        Throwable error = failure;
        if (error != null) {
            throw new CompletionException(error);
        }
        return ended;
    }

    /// Waits for its end.
    ///
    /// @return its result
    /// @throws CompletionException if it failed, with the reason as its cause, or the calling thread was interrupted
    /// @throws IllegalStateException if its thread waits for the calling one
    public final R await() {
        Thread current = Thread.currentThread();
        beginWait();
        try {
            return checked(result.get());
        } catch (InterruptedException error) {
            current.interrupt();
            throw new CompletionException("the thread was interrupted while it waited for the work of another one on the same key", error);
        } catch (ExecutionException error) {
            throw new CompletionException(error.getCause());
        } finally {
            endWait();
        }
    }

    /// Notes that the calling thread waits for its owner, until [#endWait].
    ///
    /// @throws IllegalStateException if its owner waits for the calling thread, which does not wait then
    public final void beginWait() {
        Thread current = Thread.currentThread();
        WAITS.put(current, this);
        // Of threads that wait for each other, the last one sees it.
        List<Work<?>> circle = waits(current);
        if (!circle.isEmpty() && circle.equals(waits(current))) {
            endWait();
            throw new IllegalStateException("recursive work on a key: a function of a cache would wait for itself, by this thread or by others");
        }
    }

    /// Notes that the calling thread does not wait any more.
    public final void endWait() {
        WAITS.remove(Thread.currentThread());
    }

    /// The works that wait for each other up to one of a thread; empty if there is none. Of two equal answers, all works
    /// waited at the same moment.
    private List<Work<?>> waits(Thread thread) {
        List<Work<?>> waits = new ArrayList<>();
        for (Work<?> work = this; work != null && !work.result.isDone() && !waits.contains(work); ) {
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
