package io.hugewise.memory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// Memory for metadata outside of the heap.
final class Metadata {
    private static final int MAPPED = KernelRegion.PRIVATE_ANONYMOUS | KernelRegion.NORESERVE;

    private Metadata() {}

    /// Whether this module may call the kernel without a warning of the JVM.
    static boolean isKernelCallable() {
        return Platform.current().folder().isPresent() && Metadata.class.getModule().isNativeAccessEnabled();
    }

    /// Zeroed memory, released when it is unreachable. If the kernel can be asked, it is resident only where it is used.
    static MemorySegment reserve(long size) {
        if (isKernelCallable()) {
            long address = SystemCall.MMAP.call(0, size, KernelRegion.READ_WRITE, MAPPED, -1, 0);
            if (address > 0) {
                return MemorySegment.ofAddress(address)
                        .reinterpret(size, Arena.ofAuto(), memory -> SystemCall.MUNMAP.call(memory.address(), size));
            }
        }
        return Arena.ofAuto().allocate(size, Long.BYTES);
    }
}
