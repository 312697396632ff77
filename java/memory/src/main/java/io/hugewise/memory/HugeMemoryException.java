package io.hugewise.memory;

import java.io.Serial;

/// Memory could not be had, or not be used as asked. The message says what was tried, what the system
/// answered, and what would help.
public class HugeMemoryException extends RuntimeException {
    @Serial
    private static final long serialVersionUID = 1;

    HugeMemoryException(String message) {
        super(message);
    }

    HugeMemoryException(String message, Throwable cause) {
        super(message, cause);
    }
}
