package io.hugewise.memory;

import java.io.Serial;

/// An arena, an allocator or a pool has less contiguous memory left than requested.
public final class MemoryExhaustedException extends HugeMemoryException {
    @Serial
    private static final long serialVersionUID = 1;

    MemoryExhaustedException(String message) {
        super(message);
    }
}
