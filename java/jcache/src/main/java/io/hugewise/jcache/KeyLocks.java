package io.hugewise.jcache;

import io.hugewise.cache.work.Exclusion;
import io.hugewise.cache.work.Work;
import io.hugewise.memory.internal.Stack;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.function.Supplier;
import javax.cache.CacheException;
import org.jspecify.annotations.Nullable;

/// Operations of keys, as bytes: those of the same key exclude each other.
final class KeyLocks {
    private final Exclusion<ByteBuffer> operations = new Exclusion<>();

    /// Whether the calling thread runs an operation of a key.
    boolean isOwn(byte[] key) {
        return operations.isOwn(ByteBuffer.wrap(key));
    }

    /// Runs an operation of a key.
    ///
    /// @throws IllegalStateException if it would wait for itself, by this thread or by others
    <R extends @Nullable Object> R with(byte[] key, Supplier<R> operation) {
        return withAll(List.of(ByteBuffer.wrap(key)), operation);
    }

    /// Runs an operation of several keys.
    <R extends @Nullable Object> R withAll(Collection<byte[]> keys, Supplier<R> operation) {
        // In the same order in all threads.
        return withAll(keys.stream().map(ByteBuffer::wrap).distinct().sorted().toList(), operation);
    }

    private <R extends @Nullable Object> R withAll(List<ByteBuffer> keys, Supplier<R> operation) {
        Stack.claimMore();
        var held = new Work<?>[keys.size()];
        int count = 0;
        try {
            for (; count < held.length; count++) {
                held[count] = begin(keys.get(count));
            }
            return operation.get();
        } finally {
            while (--count >= 0) {
                operations.end(keys.get(count), held[count]);
            }
        }
    }

    private Work<?> begin(ByteBuffer key) {
        try {
            return operations.begin(key);
        } catch (CompletionException error) {
            throw new CacheException(error.getMessage(), error);
        }
    }
}
