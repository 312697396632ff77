package io.hugewise.memory;

import java.lang.foreign.MemorySegment;

/// Reserved memory.
sealed interface Region permits NativeRegion, JvmRegion {
    /// The whole region, with the lifetime of its arena.
    MemorySegment memory();

    Obtained obtained();

    Coverage coverage();

    /// Populates `length` bytes from `offset`; 0 threads means all usable CPUs.
    Pretouched pretouch(long offset, long length, int threads);
}
