package io.hugewise.memory;

import java.io.Serial;

/// Memory could not be reserved or used as requested. The message has what was tried, the system's answer,
/// and the next step.
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
