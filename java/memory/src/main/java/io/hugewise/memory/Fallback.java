package io.hugewise.memory;

/// A backing that failed.
///
/// @param wanted the backing that was tried
/// @param cause the system's answer, and the next step
public record Fallback(Backing wanted, String cause) {
    @Override
    public String toString() {
        return "not " + wanted + ": " + cause;
    }
}
