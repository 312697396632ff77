package io.hugewise.memory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// Memory for metadata outside of the heap.
final class Metadata {
    private static final int READ_WRITE = 3;
    private static final int PRIVATE_ANONYMOUS = 0x22;
    private static final int NORESERVE = 0x4000;

    private Metadata() {}

    /// Whether this module may call the kernel without a warning of the JVM.
    static boolean isKernelCallable() {
        return Platform.current().folder().isPresent() && Metadata.class.getModule().isNativeAccessEnabled();
    }

    /// Zeroed memory, released when it is unreachable. If the kernel can be asked, it is resident only where it is used.
    static MemorySegment reserve(long size) {
        if (isKernelCallable()) {
            long address = SystemCall.MMAP.call(0, size, READ_WRITE, PRIVATE_ANONYMOUS | NORESERVE, -1, 0);
            if (address > 0) {
                return MemorySegment.ofAddress(address)
                        .reinterpret(size, Arena.ofAuto(), memory -> SystemCall.MUNMAP.call(memory.address(), size));
            }
        }
        return Arena.ofAuto().allocate(size, Long.BYTES);
    }
}
