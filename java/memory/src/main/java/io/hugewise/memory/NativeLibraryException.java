package io.hugewise.memory;

import java.io.Serial;

/// `libhugewise` could not be loaded. The message has the next step.
public final class NativeLibraryException extends HugeMemoryException {
    @Serial
    private static final long serialVersionUID = 1;

    NativeLibraryException(String message) {
        super(message, 0, 0);
    }

    NativeLibraryException(String message, Throwable cause) {
        super(message, cause);
    }
}
