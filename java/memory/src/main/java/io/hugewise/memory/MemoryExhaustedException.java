package io.hugewise.memory;

import java.io.Serial;

/// An arena, an allocator or a pool has less contiguous memory left than requested.
public final class MemoryExhaustedException extends HugeMemoryException {
    @Serial
    private static final long serialVersionUID = 3;

    private final long available;

    MemoryExhaustedException(String message, long requested, long available) {
        super(message, requested, 0);
        this.available = available;
    }

    /// {@return the largest size in bytes that was available}
    public long available() {
        return available;
    }
}
