package io.hugewise.cache;

import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/// A thread that runs a task when it is woken, and ten times in a second.
final class Maintenance {
    private static final long PERIOD_MILLIS = 100;

    private final Semaphore wakes = new Semaphore(0);
    private volatile boolean isClosed;

    Maintenance(Runnable task) {
        Thread.ofPlatform().daemon().name("hugewise-cache").start(() -> run(task));
    }

    private void run(Runnable task) {
        while (!isClosed) {
            try {
                if (wakes.tryAcquire(PERIOD_MILLIS, TimeUnit.MILLISECONDS)) {
                    wakes.drainPermits();
                }
            } catch (InterruptedException _) {
                return;
            }
            task.run();
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
