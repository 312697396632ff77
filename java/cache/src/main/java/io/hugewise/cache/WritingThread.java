package io.hugewise.cache;

import io.hugewise.cache.work.Work;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/// The thread that writes the changes of a cache to its store. It is started when there is work, goes on after every
/// Throwable, and ends when the task returns without any left: then the next change starts another one.
final class WritingThread {
    /// Time between two attempts to start it.
    private static final long RETRY_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final Object monitor;
    private final BooleanSupplier hasWork;
    private final BooleanSupplier isClosed;
    private final Runnable task;
    /// Without those of the store.
    final Failures failures = new Failures();
    /// Of the thread that has built the cache: it is that of the store.
    private final @Nullable ClassLoader classLoader = Thread.currentThread().getContextClassLoader();
    private volatile @Nullable Thread thread;
    /// What a thread waits for that waits for the store.
    final Writing work = new Writing();
    /// Time of the last attempt to start it that failed, under the monitor.
    private long failedNanos = System.nanoTime() - RETRY_NANOS;

    /// @param monitor is held when a change of what `hasWork` returns is notified
    /// @param task does a part of the work, or returns when there has been none for some time
    WritingThread(Object monitor, BooleanSupplier hasWork, BooleanSupplier isClosed, Runnable task) {
        this.monitor = monitor;
        this.hasWork = hasWork;
        this.isClosed = isClosed;
        this.task = task;
    }

    /// The work of the thread that runs.
    static final class Writing extends Work<@Nullable Void> {}

    boolean isRunning() {
        return thread != null;
    }

    boolean isCurrent() {
        return Thread.currentThread().equals(thread);
    }

    /// Starts it if there is work.
    ///
    /// @return false if there is, and the system refuses the thread
    boolean start() {
        if (thread != null || !hasWork.getAsBoolean()) {
            return true;
        }
        synchronized (monitor) {
            if (thread == null && !isClosed.getAsBoolean() && System.nanoTime() - failedNanos >= RETRY_NANOS) {
                startThread();
            }
            return thread != null || isClosed.getAsBoolean();
        }
    }

    private void startThread() {
        try {
            Thread started = Thread.ofPlatform().daemon().name("hugewise-cache-writer").unstarted(this::run);
            started.setContextClassLoader(classLoader);
            thread = started;
            started.start();
        } catch (Throwable error) {
            thread = null;
            failedNanos = System.nanoTime();
            failures.note(error, "the thread that writes the changes of a cache could not be started, and is tried again");
        }
    }

    private void run() {
        work.takeOver();
        while (!hasEnded()) {
            try {
                task.run();
            } catch (Throwable error) {
                // Keys are dropped when their changes are written, so nothing is lost.
                failures.note(error, "the thread that writes the changes of a cache failed, and goes on");
            }
        }
    }

    /// Whether it ends: another one starts if a change has been made that this one does not see.
    private boolean hasEnded() {
        synchronized (monitor) {
            if (!isClosed.getAsBoolean() && hasWork.getAsBoolean()) {
                return false;
            }
            thread = null;
            if (!isClosed.getAsBoolean() && hasWork.getAsBoolean()) {
                thread = Thread.currentThread();
                return false;
            }
            return true;
        }
    }

    /// Waits for its end after the cache was closed.
    ///
    /// @param wake notifies it
    void awaitEnd(Runnable wake) {
        Thread ending = thread;
        wake.run();
        Background.awaitEnd(ending);
    }
}
