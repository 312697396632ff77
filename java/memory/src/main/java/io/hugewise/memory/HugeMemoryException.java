package io.hugewise.memory;

import java.io.Serial;
import java.util.List;
import java.util.stream.Collectors;

/// Memory could not be reserved or used as requested. The message has what was tried, the system's answer,
/// and the next step.
public class HugeMemoryException extends RuntimeException {
    @Serial
    private static final long serialVersionUID = 2;

    private final long requested;
    private final int errno;

    HugeMemoryException(String message, long requested, int errno) {
        super(message);
        this.requested = requested;
        this.errno = errno;
    }

    HugeMemoryException(String message, Throwable cause) {
        super(message, cause);
        this.requested = 0;
        this.errno = 0;
    }

    /// No backing of a list is available.
    static HugeMemoryException noneOf(long size, List<Fallback> causes, int errno) {
        String all = causes.stream().map(of -> of.wanted() + ": " + of.cause()).collect(Collectors.joining("; "));
        return new HugeMemoryException(Bytes.text(size) + " could not be reserved: " + all, size, errno);
    }

    /// The same after better backings that failed before.
    HugeMemoryException after(List<Fallback> failed) {
        String before = failed.stream().map(of -> of.wanted() + ": " + of.cause()).collect(Collectors.joining("; "));
        var whole = new HugeMemoryException(getMessage() + "; before: " + before, requested, errno);
        whole.initCause(this);
        return whole;
    }

    /// {@return the requested bytes; 0 if it is not about a size}
    public long requested() {
        return requested;
    }

    /// {@return the system's error number, such as 12 (ENOMEM); 0 if the system did not answer with an error}
    public int errno() {
        return errno;
    }
}
