package io.hugewise.memory;

import java.io.Serial;

/// An arena, an allocator or a pool has less contiguous memory left than requested.
public final class MemoryExhaustedException extends HugeMemoryException {
    @Serial
    private static final long serialVersionUID = 2;

    private final long requested;
    private final long available;

    MemoryExhaustedException(String message, long requested, long available) {
        super(message);
        this.requested = requested;
        this.available = available;
    }

    /// {@return the requested bytes}
    public long requested() {
        return requested;
    }

    /// {@return the largest size in bytes that was available}
    public long available() {
        return available;
    }
}
