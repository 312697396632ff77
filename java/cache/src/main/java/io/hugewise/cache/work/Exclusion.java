package io.hugewise.cache.work;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.jspecify.annotations.Nullable;

/// Operations on keys, of which those on the same key exclude each other.
///
/// @param <K> type of keys
public final class Exclusion<K> {
    private final ConcurrentMap<K, Operation> operations = new ConcurrentHashMap<>();

    private static final class Operation extends Work<@Nullable Void> {}

    /// Creates one without operations.
    public Exclusion() {}

    /// Returns whether the calling thread runs an operation on a key.
    ///
    /// @param key the key
    /// @return whether it does
    public boolean isOwn(K key) {
        Operation present = operations.get(key);
        return present != null && present.isOwn();
    }

    /// Begins an operation, after those of other threads on the same key.
    ///
    /// @param key the key
    /// @return the operation, for [#end]
    /// @throws IllegalStateException if it would wait for itself, by this thread or by others
    /// @throws java.util.concurrent.CompletionException if the thread is interrupted while it waits
    public Work<?> begin(K key) {
        var own = new Operation();
        own.tryOwn();
        try {
            for (Operation other = operations.putIfAbsent(key, own); other != null; other = operations.putIfAbsent(key, own)) {
                other.await();
            }
            return own;
        } catch (Throwable error) {
            // Without heap memory, a map may have grown by a mapping, and fail to count it.
            end(key, own);
            throw error;
        }
    }

    /// Ends an operation. It throws nothing.
    ///
    /// @param key its key
    /// @param operation the operation
    @SuppressWarnings("NullAway") // The result is not read.
    public void end(K key, Work<?> operation) {
        Work.remove(operations, key, operation);
        operation.end(null);
    }
}
