package io.hugewise.memory;

/// A backing that was wanted, and not got.
///
/// @param wanted what was tried
/// @param cause what the system answered, and what would help
public record Fallback(Backing wanted, String cause) {
    @Override
    public String toString() {
        return "not " + wanted + ": " + cause;
    }
}
