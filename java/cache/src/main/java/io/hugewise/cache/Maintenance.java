package io.hugewise.cache;

import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/// A thread that runs a task when it is woken, and ten times in a second, whatever the task throws.
final class Maintenance {
    private static final long PERIOD_MILLIS = 100;

    private final Semaphore wakes = new Semaphore(0);
    private final Failures failures;
    private volatile boolean isClosed;

    Maintenance(Failures failures, Runnable task) {
        this.failures = failures;
        Thread.ofPlatform().daemon().name("hugewise-cache").start(() -> run(task));
    }

    private void run(Runnable task) {
        while (!isClosed) {
            try {
                if (wakes.tryAcquire(PERIOD_MILLIS, TimeUnit.MILLISECONDS)) {
                    wakes.drainPermits();
                }
                task.run();
            } catch (InterruptedException _) {
                // Only the end of the cache ends this thread.
            } catch (Throwable error) {
                failures.note(error, "the background work of a cache failed, and goes on");
                pause();
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(PERIOD_MILLIS);
        } catch (Throwable _) {
            // Without a pause, then.
        }
    }

    void wake() {
        if (wakes.availablePermits() == 0) {
            wakes.release();
        }
    }

    void close() {
        isClosed = true;
        wake();
    }
}
