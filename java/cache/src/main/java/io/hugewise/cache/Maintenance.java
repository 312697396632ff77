package io.hugewise.cache;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/// The background work of a cache, a part of which is done when it is due, whatever it throws.
final class Maintenance {
    /// No time.
    static final long NEVER = Long.MAX_VALUE;
    /// Longest time from a change of the cache to the work that follows it, in nanoseconds.
    static final long PERIOD_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    private static final long START_NANOS = System.nanoTime();

    final Failures failures;
    private final Part part;
    /// Whether it calls a function of the cache's user, the clock: then a thread of its own runs it.
    private final boolean callsUser;
    private final AtomicBoolean isRunning = new AtomicBoolean();
    /// Time at which it is due, in nanoseconds since [#START_NANOS].
    private final AtomicLong due = new AtomicLong(NEVER);
    /// Whether it is due within the period.
    private volatile boolean isSoon;

    /// A part of the work.
    interface Part {
        /// Does it.
        ///
        /// @return nanoseconds until the next part is due; [#NEVER] if only a change leads to more work
        long run() throws InterruptedException;
    }

    Maintenance(Failures failures, boolean callsUser, Part part) {
        this.failures = failures;
        this.callsUser = callsUser;
        this.part = part;
    }

    void begin() {
        Background.add(this);
        changed();
    }

    private static long now() {
        return System.nanoTime() - START_NANOS;
    }

    /// Notes that the cache was changed. It only reads a field if that is noted already.
    void changed() {
        if (!isSoon) {
            isSoon = true;
            dueIn(PERIOD_NANOS);
        }
    }

    /// Makes it due at once.
    void wake() {
        if (due.get() > 0) {
            dueAt(0);
        }
    }

    private void dueIn(long nanos) {
        if (nanos != NEVER) {
            long now = now();
            dueAt(nanos < NEVER - now ? now + nanos : NEVER);
        }
    }

    private void dueAt(long time) {
        if (time < due.getAndAccumulate(time, Math::min)) {
            Background.wake(failures);
        }
    }

    /// Does a part of the work if it is due.
    ///
    /// @return nanoseconds until it is due
    long runIfDue() {
        long left = nanosUntilDue();
        if (left > 0) {
            return left;
        }
        due.set(NEVER);
        isSoon = false;
        if (callsUser) {
            runAside();
        } else {
            run();
        }
        return nanosUntilDue();
    }

    private long nanosUntilDue() {
        long at = due.get();
        return at == NEVER ? NEVER : Math.max(0, at - now());
    }

    private void run() {
        long next = PERIOD_NANOS;
        try {
            next = part.run();
        } catch (InterruptedException _) {
            // Only the end of the caches ends the thread.
        } catch (Throwable error) {
            failures.note(error, "the background work of a cache failed, and goes on");
        }
        dueIn(next);
    }

    private void runAside() {
        if (!isRunning.compareAndSet(false, true)) {
            dueIn(PERIOD_NANOS);
            return;
        }
        boolean hasBegun = false;
        try {
            var _ = Thread.ofVirtual().name("hugewise-cache-clock").start(() -> {
                try {
                    run();
                } finally {
                    isRunning.set(false);
                }
            });
            hasBegun = true;
        } catch (Throwable error) {
            failures.note(error, "the background work of a cache could not begin, and is tried again");
        } finally {
            if (!hasBegun) {
                isRunning.set(false);
                dueIn(PERIOD_NANOS);
            }
        }
    }

    void close() {
        Background.remove(this);
    }
}
