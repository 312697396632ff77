package io.hugewise.cache;

import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/// Failures of one kind of work that goes on after them. They are counted, and the first one is logged.
final class Failures {
    private final AtomicLong count = new AtomicLong();
    private final AtomicBoolean isLogged = new AtomicBoolean();
    private volatile @Nullable Throwable last;

    /// Counts a failure. It throws nothing, even if no memory or stack is left for the log.
    void note(Throwable error, String what) {
        try {
            count.incrementAndGet();
            last = error;
            if (isLogged.compareAndSet(false, true)) {
                System.getLogger("io.hugewise.cache").log(System.Logger.Level.WARNING,
                        what + "; further failures of this cache's kind are counted, not logged", error);
            }
        } catch (Throwable _) {
            // The failure is counted, or the next one will be.
        }
    }

    long count() {
        return count.get();
    }

    @Nullable Throwable last() {
        return last;
    }
}
