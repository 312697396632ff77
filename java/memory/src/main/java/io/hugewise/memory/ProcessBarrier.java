package io.hugewise.memory;

import java.lang.foreign.Arena;

/// A memory barrier of all running threads of this process, `membarrier(2)`, for the rare side of a handshake whose
/// frequent side then needs none.
final class ProcessBarrier {
    private static final int PRIVATE_EXPEDITED = 1 << 3;
    private static final int REGISTER_PRIVATE_EXPEDITED = 1 << 4;

    /// Whether the kernel provides it to this process. Without permission for native access it is not asked.
    static final boolean IS_AVAILABLE =
            Metadata.isKernelCallable() && SystemCall.MEMBARRIER.call(REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;

    private ProcessBarrier() {}

    /// Returns after each running thread of the process has executed a full memory barrier.
    static void await() {
        if (SystemCall.MEMBARRIER.call(PRIVATE_EXPEDITED, 0, 0) != 0) {
            // A filter of system calls that is younger than this class. The JVM closes a shared arena by a handshake with
            // each of its threads, which takes longer.
            Arena.ofShared().close();
        }
    }
}
