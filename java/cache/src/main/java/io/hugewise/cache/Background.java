package io.hugewise.cache;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/// The thread that does the background work of all open caches: when it is due, a part of it for each cache in turn. It
/// sleeps while none is due, runs no function of a cache's user, and ends with the last cache.
final class Background {
    /// Time between two attempts to start the thread.
    private static final long RETRY_NANOS = TimeUnit.SECONDS.toNanos(1);

    private static final long END_MILLIS = 1000;

    private static final Set<Maintenance> OPEN = ConcurrentHashMap.newKeySet();
    private static volatile @Nullable Thread thread;
    /// Whether work may be due since the thread looked last. The permit of [LockSupport] alone does not say it: work that pauses
    /// uses it up.
    private static volatile boolean isWoken;
    /// Time of the last attempt that failed.
    private static volatile long failedNanos = System.nanoTime() - RETRY_NANOS;

    private Background() {}

    static void add(Maintenance maintenance) {
        OPEN.add(maintenance);
        wake(maintenance.failures);
    }

    /// Waits for the end of the thread if it was the last cache: a servlet container reports threads of an application that has
    /// ended.
    static void remove(Maintenance maintenance) {
        OPEN.remove(maintenance);
        Thread ending = thread;
        unpark();
        if (OPEN.isEmpty()) {
            awaitEnd(ending);
        }
    }

    /// Waits a second at most until another thread has ended.
    static void awaitEnd(@Nullable Thread ending) {
        if (ending != null && !ending.equals(Thread.currentThread())) {
            try {
                ending.join(END_MILLIS);
            } catch (InterruptedException _) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /// Lets the thread look for work that is due. If the system refuses the thread, caches do without for a second.
    ///
    /// @param failures counts that it was refused
    static void wake(Failures failures) {
        if (thread == null && System.nanoTime() - failedNanos >= RETRY_NANOS) {
            start(failures);
        }
        unpark();
    }

    private static void unpark() {
        isWoken = true;
        LockSupport.unpark(thread);
    }

    private static synchronized void start(Failures failures) {
        if (thread != null) {
            return;
        }
        try {
            // It outlives the program that has opened the first cache, and must not keep its class loader.
            Thread started = Thread.ofPlatform().daemon().name("hugewise-cache").inheritInheritableThreadLocals(false).unstarted(Background::run);
            thread = started;
            started.start();
        } catch (Throwable error) {
            thread = null;
            failedNanos = System.nanoTime();
            failures.note(error, "the thread for the background work of caches could not be started, and is tried again");
        }
    }

    private static void run() {
        while (!isEnded()) {
            long next = Maintenance.PERIOD_NANOS;
            try {
                next = runDue();
            } catch (Throwable _) {
                // No memory of the heap is left. It is tried again.
            }
            if (next > 0 && !isWoken) {
                LockSupport.parkNanos(next);
            }
            isWoken = false;
        }
    }

    /// Does a part of the work of each cache that is due.
    ///
    /// @return nanoseconds until the next one is due
    private static long runDue() {
        long next = Maintenance.NEVER;
        for (Maintenance maintenance : OPEN) {
            next = Math.min(next, maintenance.runIfDue());
        }
        return next;
    }

    private static synchronized boolean isEnded() {
        if (!OPEN.isEmpty()) {
            return false;
        }
        thread = null;
        return true;
    }
}
