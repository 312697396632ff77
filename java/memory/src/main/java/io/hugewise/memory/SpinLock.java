package io.hugewise.memory;

/// A lock for a few dozen instructions, which a virtual thread may hold: it never parks. Its holder must not park
/// either: virtual threads that wait by yielding can keep all carrier threads from the one that holds it.
final class SpinLock {
    private static final int SPINS = 64;

    private final int[] held = new int[1];

    void lock() {
        for (int spins = 0; !tryLock(); spins++) {
            pause(spins);
        }
    }

    boolean tryLock() {
        return Atomics.get(held, 0) == 0 && Atomics.change(held, 0, 0, 1);
    }

    void unlock() {
        Atomics.put(held, 0, 0);
    }

    /// Waits a moment; lets other threads run if there were many.
    @SuppressWarnings("ThreadPriorityCheck") // The thread that is waited for may have no CPU.
    static void pause(int spins) {
        if (spins < SPINS) {
            Thread.onSpinWait();
        } else {
            Thread.yield();
        }
    }
}
