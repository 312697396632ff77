package io.hugewise.memory;

/// Whether a request has failed for lack of memory, so that those who free memory must say so.
///
/// A request that failed need not be tried again as long as [#releases] stays the same. Once it has changed, the
/// request may succeed, and memory is not scarce until a request fails again.
final class Scarcity {
    private final SpinLock lock = new SpinLock();
    /// Requests that are being tried with all memory.
    private int attempts;
    /// Whether one has failed since the last release.
    private boolean hasFailed;

    private volatile int releases;
    private volatile boolean isScarce;

    boolean isScarce() {
        return isScarce;
    }

    /// Changes when memory becomes free while it is scarce.
    int releases() {
        return releases;
    }

    /// Before a request is tried with all memory: from now on, releases are counted.
    void beginAttempt() {
        lock.lock();
        try {
            attempts++;
            isScarce = true;
        } finally {
            lock.unlock();
        }
    }

    /// After a request was tried with all memory.
    void endAttempt(boolean failed) {
        lock.lock();
        try {
            hasFailed |= failed;
            attempts--;
            isScarce = attempts > 0 || hasFailed;
        } finally {
            lock.unlock();
        }
    }

    /// Lets requests that failed be tried again: later than the memory can be found, so one that fails now has seen it.
    @SuppressWarnings("NonAtomicVolatileUpdate") // The lock is held.
    void noteRelease() {
        if (!isScarce) {
            return;
        }
        lock.lock();
        try {
            releases++;
            hasFailed = false;
            isScarce = attempts > 0;
        } finally {
            lock.unlock();
        }
    }
}
