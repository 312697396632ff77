package io.hugewise.races;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;

/// The allocator that all states of a test share: states are made by the thousand.
final class Memory {
    static final HugeAllocator ALLOCATOR =
            HugeAllocator.of(HugeArena.ofShared(HugeOptions.reserve(1L << 32).only(Backing.base())));

    private Memory() {}

    static long allocate(long size) {
        return ALLOCATOR.allocateOffset(size);
    }

    /// Frees a block; returns 1, or 0 if it is refused because it is free.
    static int free(long block) {
        return free(ALLOCATOR, block);
    }

    static int free(HugeAllocator allocator, long block) {
        try {
            allocator.freeOffset(block);
            return 1;
        } catch (IllegalStateException | IllegalArgumentException _) {
            return 0;
        }
    }
}
