package io.hugewise.cache;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// What one function of a cache's user does while the fault is armed, instead of its work or before it.
final class Fault {
    /// The functions of a cache's user.
    enum Function { TICKER, KEY_WRITE, KEY_READ, SIZE, WRITE, READ, LOADER, BULK_LOADER, RELOADER, CALLED, EXECUTOR, LISTENER, STORE, ORDER, WEIGHER, EXPIRY }

    /// What it does.
    enum Kind { EXCEPTION, ERROR, OVERFLOW, OUT_OF_MEMORY, STALL, SAME_KEY, OTHER_KEY, INTERRUPT }

    private final Function function;
    private final Kind kind;
    private final ThreadLocal<Boolean> isInside = ThreadLocal.withInitial(() -> false);
    private final AtomicInteger left = new AtomicInteger();
    volatile HugeCache<Long, byte[]> cache;
    private volatile long key;
    volatile CountDownLatch begun = new CountDownLatch(1);
    volatile CountDownLatch end = new CountDownLatch(1);

    Fault(Function function, Kind kind) {
        this.function = function;
        this.kind = kind;
    }

    /// Begins to do it, during an operation on a key.
    void arm(long of) {
        key = of;
        begun = new CountDownLatch(1);
        end = new CountDownLatch(1);
        left.set(kind == Kind.STALL ? 1 : 20);
    }

    void disarm() {
        left.set(0);
        end.countDown();
    }

    private static int overflow(int depth) {
        return 1 + overflow(depth + 1);
    }

    /// Called by each function.
    void at(Function called) {
        if (called != function || left.get() <= 0 || isInside.get() || left.getAndDecrement() <= 0) {
            return;
        }
        isInside.set(true);
        try {
            act();
        } finally {
            isInside.set(false);
        }
    }

    private void act() {
        switch (kind) {
            case EXCEPTION -> throw new IllegalArgumentException("of a test");
            case ERROR -> throw new LinkageError("of a test");
            case OVERFLOW -> overflow(0);
            case OUT_OF_MEMORY -> throw new OutOfMemoryError("of a test");
            case STALL -> {
                CountDownLatch until = end;
                begun.countDown();
                try {
                    until.await(300, TimeUnit.SECONDS);
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            }
            case SAME_KEY -> use(key);
            case OTHER_KEY -> use(key + 1000);
            case INTERRUPT -> Thread.currentThread().interrupt();
        }
    }

    private void use(long of) {
        cache.getIfPresent(of);
        cache.put(of, Operations.value(of));
        cache.get(of, _ -> null);
        cache.asMap().compute(of, (_, value) -> value);
        cache.invalidate(of);
    }

    /// Serializers of keys and of values that call it.
    <T> Serializer<T> serializer(Serializer<T> of, Function size, Function write, Function read) {
        return new Serializer<>() {
            @Override
            public int size(T value) {
                at(size);
                return of.size(value);
            }

            @Override
            public void write(T value, MemorySegment to) {
                at(write);
                of.write(value, to);
            }

            @Override
            public T read(MemorySegment from) {
                at(read);
                return of.read(from);
            }
        };
    }
}
