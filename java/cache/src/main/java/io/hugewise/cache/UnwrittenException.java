package io.hugewise.cache;

import org.jspecify.annotations.Nullable;

/// A change is not in the store, because the store failed. The message says what happened to the change.
public final class UnwrittenException extends RuntimeException {
    private static final long serialVersionUID = 1;

    UnwrittenException(String message, @Nullable Throwable cause) {
        super(message, cause);
    }
}
