package io.hugewise.memory;

import java.lang.foreign.MemorySegment;
import java.time.Duration;

/// Result of a collapse.
///
/// @param huge bytes of blocks that lie on huge pages now
/// @param missed bytes that do not: of blocks that the kernel refused to collapse, and at the end, of a part of a block
/// @param errno the error number of the last refusal, such as 12 (ENOMEM): no huge page was free; 0 if there was none
/// @param elapsed duration
public record Collapsed(long huge, long missed, int errno, Duration elapsed) {
    /// Times that a block is tried while the kernel is busy with it.
    private static final int TRIES = 3;

    static Collapsed of(MemorySegment memory, long pageSize) {
        long begin = System.nanoTime();
        long huge = 0;
        int errno = 0;
        for (long offset = 0; offset + pageSize <= memory.byteSize(); offset += pageSize) {
            long answer = -SystemCall.EAGAIN;
            for (int tries = 0; answer == -SystemCall.EAGAIN && tries < TRIES; tries++) {
                answer = Advice.advise(memory.address() + offset, pageSize, Advice.COLLAPSE);
            }
            huge += answer == 0 ? pageSize : 0;
            errno = answer == 0 ? errno : (int) -answer;
        }
        return new Collapsed(huge, memory.byteSize() - huge, errno, Duration.ofNanos(System.nanoTime() - begin));
    }
}
