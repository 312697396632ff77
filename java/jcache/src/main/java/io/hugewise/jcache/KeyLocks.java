package io.hugewise.jcache;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/// Locks of keys, of which several share one.
final class KeyLocks {
    private static final int COUNT = 256;

    private final ReentrantLock[] locks = new ReentrantLock[COUNT];

    KeyLocks() {
        Arrays.setAll(locks, _ -> new ReentrantLock());
    }

    ReentrantLock of(byte[] key) {
        return locks[stripe(key)];
    }

    private static int stripe(byte[] key) {
        int hash = Arrays.hashCode(key) * 0x9E3779B9;
        return hash >>> Integer.numberOfLeadingZeros(COUNT - 1);
    }

    /// Runs an operation of several keys.
    <R extends @Nullable Object> R withAll(Collection<byte[]> keys, Supplier<R> operation) {
        List<ReentrantLock> held = new ArrayList<>();
        try {
            // In the same order in all threads.
            keys.stream().mapToInt(KeyLocks::stripe).distinct().sorted().forEach(stripe -> {
                locks[stripe].lock();
                held.add(locks[stripe]);
            });
            return operation.get();
        } finally {
            held.forEach(ReentrantLock::unlock);
        }
    }
}
