package io.hugewise.cache;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/// Keys whose changes the store has refused alone, and when they are tried again. Only the thread that writes changes it.
@SuppressWarnings("NonAtomicVolatileUpdate") // One thread changes it.
final class Refusals {
    private static final long FIRST_PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
    private static final long LONGEST_PAUSE_NANOS = TimeUnit.MINUTES.toNanos(1);
    /// Keys that are set aside although no change of another key was written since.
    private static final int MOST_UNPROVEN = 8;

    final AtomicLong refused = new AtomicLong();
    private final Map<KeyBytes, Key> keys = new HashMap<>();
    private volatile int size;

    /// A key.
    private static final class Key {
        int attempts;
        /// Batches that were written when its change was tried first.
        long batches;
        boolean isAside;
        boolean isRefused;
        long pause = FIRST_PAUSE_NANOS;
        long next;
    }

    /// Number of keys that are set aside.
    int size() {
        return size;
    }

    /// Whether a key is set aside, and not to be tried yet.
    boolean isAside(KeyBytes key, long now) {
        Key of = keys.get(key);
        return of != null && of.isAside && of.next - now > 0;
    }

    /// Whether a key that is set aside is to be tried.
    boolean isDue(long now) {
        return size > 0 && keys.values().stream().anyMatch(key -> key.isAside && key.next - now <= 0);
    }

    /// The keys that are set aside, which are to be tried now.
    Iterable<KeyBytes> retry() {
        keys.values().forEach(key -> key.next = System.nanoTime());
        return keys.entrySet().stream().filter(entry -> entry.getValue().isAside).map(Map.Entry::getKey).toList();
    }

    /// Notes that a change was written, or there is none any more.
    void written(KeyBytes key) {
        if (!keys.isEmpty()) {
            Key of = keys.remove(key);
            size -= of != null && of.isAside ? 1 : 0;
        }
    }

    /// Notes that the change of a key was refused alone.
    ///
    /// @param batches batches that were written since the beginning
    /// @return how often it was tried if it is refused for the first time while others are written; 0 otherwise
    int failed(KeyBytes key, long batches, int most) {
        Key of = keys.computeIfAbsent(key, _ -> new Key());
        if (of.attempts++ == 0) {
            of.batches = batches;
        }
        boolean isProven = batches > of.batches;
        if (of.attempts >= most && !of.isAside && (isProven || size < MOST_UNPROVEN)) {
            of.isAside = true;
            size++;
        }
        of.next = System.nanoTime() + of.pause;
        of.pause = Math.min(isProven ? LONGEST_PAUSE_NANOS : TimeUnit.SECONDS.toNanos(1), 2 * of.pause);
        if (of.isAside && isProven && !of.isRefused) {
            of.isRefused = true;
            refused.incrementAndGet();
            return of.attempts;
        }
        return 0;
    }

    /// Whether a key is set aside.
    boolean isAside(KeyBytes key) {
        Key of = keys.get(key);
        return of != null && of.isAside;
    }
}
