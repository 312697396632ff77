package io.hugewise.memory;

import java.lang.foreign.MemorySegment;

/// Reserved memory, and what is known of it.
sealed interface Region permits NativeRegion, JvmRegion {
    /// All of it; it goes with the arena that it was reserved in.
    MemorySegment memory();

    Obtained obtained();

    Coverage coverage();

    /// Makes a part of it present; 0 threads for as many as CPUs may be used.
    Pretouched pretouch(long offset, long length, int threads);
}
