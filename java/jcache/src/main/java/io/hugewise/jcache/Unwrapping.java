package io.hugewise.jcache;

/// Access to the objects behind those of JCache.
final class Unwrapping {
    private Unwrapping() {}

    /// Returns the first of some objects that has a type.
    ///
    /// @throws IllegalArgumentException if none has it
    static <T> T as(Class<T> type, Object... objects) {
        for (Object object : objects) {
            if (type.isInstance(object)) {
                return type.cast(object);
            }
        }
        throw new IllegalArgumentException("cannot be unwrapped as " + type.getName());
    }
}
