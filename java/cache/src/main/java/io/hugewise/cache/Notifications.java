package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/// Removed entries of which the listener of a cache is to be notified. They are noted with locks, and delivered without:
/// the executor, the serializers and the listener may take any time, throw, or use the cache.
final class Notifications<K, V> {
    private static final String LOST = "a removal listener was not notified";

    private final @Nullable RemovalListener<? super K, ? super V> listener;
    private final Executor executor;
    private final EntryCodec<K, V> codec;
    final Failures failures;
    /// That of the thread that has built the cache: it is the one of its user.
    private final @Nullable ClassLoader classLoader = Thread.currentThread().getContextClassLoader();
    /// Those of threads that have not ended their operation.
    private final ConcurrentMap<Thread, Noted> noted = new ConcurrentHashMap<>();
    /// Those that no thread has to deliver by itself.
    private final Queue<Removed> queue = new ConcurrentLinkedQueue<>();
    private final AtomicBoolean isDelivering = new AtomicBoolean();

    /// Those of a thread, in their order.
    private static final class Noted {
        final Queue<Removed> queue = new ArrayDeque<>();
        boolean isDelivering;
    }

    /// Copies on the heap.
    private record Removed(MemorySegment key, MemorySegment value, RemovalCause cause) {}

    Notifications(HugeCacheBuilder<K, V> options, EntryCodec<K, V> codec, Failures failures) {
        this.listener = options.listener;
        this.executor = options.executor;
        this.codec = codec;
        this.failures = failures;
    }

    /// Notes that an entry was removed, whose memory is not used again yet.
    void removed(long entry, RemovalCause cause) {
        if (listener == null) {
            return;
        }
        try {
            var removed = new Removed(EntryCodec.copy(codec.keyMemory(entry)), codec.copy(entry), cause);
            noted.computeIfAbsent(Thread.currentThread(), _ -> new Noted()).queue.add(removed);
        } catch (Throwable error) {
            // An eviction must go on: later ones would miss the memory that it has taken.
            failures.note(error, LOST);
        }
    }

    /// Notifies the listener of the entries that the calling thread has removed. It holds no lock.
    void deliver() {
        Noted own = listener == null ? null : noted.get(Thread.currentThread());
        if (own == null || own.isDelivering) {
            return;
        }
        own.isDelivering = true;
        try {
            for (int left = own.queue.size(); left > 0; left--) {
                deliver(own.queue.remove());
            }
        } finally {
            // What a listener removes is left: its own listener might remove more, without an end.
            deliverLater();
        }
    }

    /// Lets another thread do it: one that removes entries of all keys must not run functions of the cache's user.
    ///
    /// @return whether no thread could begin
    boolean deliverLater() {
        Noted own = listener == null ? null : noted.remove(Thread.currentThread());
        try {
            if (own != null) {
                queue.addAll(own.queue);
            }
            if (!queue.isEmpty() && isDelivering.compareAndSet(false, true)) {
                beginDelivery();
            }
        } catch (Throwable error) {
            failures.note(error, LOST);
        }
        return !queue.isEmpty() && !isDelivering.get();
    }

    /// One thread at a time, and none of a pool: an executor or listener may take any time.
    private void beginDelivery() {
        boolean hasBegun = false;
        try {
            Thread delivering = Thread.ofVirtual().name("hugewise-cache-listener").unstarted(this::deliverQueue);
            delivering.setContextClassLoader(classLoader);
            delivering.start();
            hasBegun = true;
        } finally {
            if (!hasBegun) {
                isDelivering.set(false);
            }
        }
    }

    private void deliverQueue() {
        try {
            var own = new Noted();
            own.isDelivering = true;
            noted.put(Thread.currentThread(), own);
            for (Removed next = queue.poll(); next != null; next = queue.poll()) {
                deliver(next);
            }
        } finally {
            isDelivering.set(false);
        }
        deliverLater();
    }

    private void deliver(Removed removed) {
        try {
            executor.execute(() -> call(removed));
        } catch (Throwable error) {
            failures.note(error, "the executor of a removal listener failed");
        }
    }

    private void call(Removed removed) {
        RemovalListener<? super K, ? super V> called = listener;
        if (called != null) {
            try {
                called.onRemoval(codec.key(removed.key), codec.value(removed.value), removed.cause);
            } catch (Throwable error) {
                failures.note(error, "a removal listener failed");
            }
        }
    }
}
