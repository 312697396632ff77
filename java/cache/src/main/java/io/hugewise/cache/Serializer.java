package io.hugewise.cache;

import java.lang.foreign.MemorySegment;

/// Writes objects to memory and reads them again. Any thread may call it.
///
/// The bytes of two keys must be equal exactly if the keys are. [Serializers] has those of common types.
///
/// @param <T> type of the objects
public interface Serializer<T> {
    /// Returns the number of bytes that [#write] writes.
    ///
    /// @param value the object
    /// @return its size in bytes
    int size(T value);

    /// Writes an object.
    ///
    /// @param value the object
    /// @param to memory of the size that [#size] returned; it must not be used later
    void write(T value, MemorySegment to);

    /// Reads an object.
    ///
    /// @param from memory that [#write] has written; it must not be used later
    /// @return a new object, which does not refer to this memory
    T read(MemorySegment from);

    /// Whether two values are equal exactly if their bytes are. Then, the cache compares bytes where a map would call
    /// `equals`; otherwise it reads the value and calls that.
    ///
    /// @return false by default
    default boolean isCanonical() {
        return false;
    }

    /// Names what [#write] writes, and in which version, for caches in a file: a file of another format is emptied.
    ///
    /// @return a name and a version, for example `order 3`; empty, as by default, if it cannot be used for a file
    default String format() {
        return "";
    }
}
