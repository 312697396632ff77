package io.hugewise.memory.internal;

import java.util.concurrent.locks.LockSupport;

/// Pauses of a thread that waits for others, each of which ends by itself.
public final class Pause {
    private Pause() {}

    /// Lets other threads run for a time, also those that need the carrier of a virtual thread. An interrupted thread waits,
    /// too, and stays interrupted: it would otherwise repeat its attempts without a pause.
    ///
    /// @param nanos the time
    public static void nanos(long nanos) {
        boolean isInterrupted = Thread.interrupted();
        try {
            long end = System.nanoTime() + nanos;
            // The interruption has left a permit, with which parking returns at once.
            for (long left = nanos; left > 0; left = end - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
        } finally {
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
