package io.hugewise.memory;

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
        long answer = SystemCall.MEMBARRIER.call(PRIVATE_EXPEDITED, 0, 0);
        if (answer != 0) {
            throw new IllegalStateException("membarrier: " + SystemCall.text(answer));
        }
    }
}
