package io.hugewise.memory;

import io.hugewise.memory.internal.Pause;

/// A lock for a few dozen instructions, which a virtual thread may hold. Its holder does not park, except to wait for
/// another such lock.
final class SpinLock {
    private static final int SPINS = 64;
    /// After so many, a thread parks: virtual threads that yield only can keep all carriers from one that waits for a carrier
    /// elsewhere, and threads of a higher priority the CPU from one of a lower one.
    private static final int YIELDS = 256;
    private static final long PARK_NANOS = 50_000;

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
        } else if (spins < YIELDS) {
            Thread.yield();
        } else {
            Pause.nanos(PARK_NANOS);
        }
    }
}
