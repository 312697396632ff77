package io.hugewise.cache;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongSupplier;

/// Times in ticks of 32 ms since the cache was created, also by an earlier process, in 4 bytes without a sign: about 4 years. Times of expiry are
/// rounded down, so no entry is read after its time.
final class Clock {
    static final int NEVER = -1;
    /// A time of expiry that has always passed.
    static final int PAST = 0;
    static final LongSupplier SYSTEM = System::nanoTime;
    private static final long TICK_NANOS = 32_000_000;
    private static final long LAST = 0xFFFF_FFFEL;

    private final LongSupplier nanos;
    private final long start;
    /// Whether it is a function of the cache's user.
    final boolean isUsers;
    private final boolean isNeeded;
    private final AtomicInteger last;

    /// @param nanos a function of the cache's user, which may take any time, throw, or use the cache: it is called without
    ///     locks, pins or slots
    /// @param start time of `nanos` at which the ticks begin
    /// @param isNeeded whether [#now] is
    Clock(LongSupplier nanos, long start, boolean isNeeded) {
        this.nanos = nanos;
        this.isUsers = !nanos.equals(SYSTEM);
        this.start = start;
        this.isNeeded = isNeeded;
        this.last = new AtomicInteger(ticks(nanos.getAsLong() - start));
    }

    long nanos() {
        return nanos.getAsLong();
    }

    /// Sets [#now], at the beginning of an operation, and after each other function of the cache's user.
    void read() {
        if (!isNeeded) {
            return;
        }
        int before = last.get();
        int now = ticks(nanos.getAsLong() - start);
        // Of readings at the same time, the latest counts.
        while (now != before && !last.compareAndSet(before, now)) {
            before = last.get();
            now = Integer.compareUnsigned(now, before) < 0 ? before : now;
        }
    }

    /// The time that was read last, for code that holds a lock, a pin or a slot.
    int now() {
        return last.get();
    }

    /// The time after a duration; [#NEVER] if it is too far.
    int after(long duration) {
        long elapsed = nanos.getAsLong() - start;
        return duration > LAST * TICK_NANOS - elapsed ? NEVER : ticks(elapsed + duration);
    }

    /// Nanoseconds until a time; [Long#MAX_VALUE] if it is never, 0 if it has passed.
    long until(int time) {
        return time == NEVER ? Long.MAX_VALUE : Math.max(0, Integer.toUnsignedLong(time) * TICK_NANOS - (nanos.getAsLong() - start));
    }

    /// Nanoseconds since a time.
    long since(int time) {
        return nanos.getAsLong() - start - Integer.toUnsignedLong(time) * TICK_NANOS;
    }

    /// The time so long after another one, rounded down.
    static int plus(int time, long duration) {
        long ticks = duration / TICK_NANOS;
        return time == NEVER || ticks > LAST - Integer.toUnsignedLong(time) ? NEVER : time + (int) ticks;
    }

    static int earlier(int one, int other) {
        return Integer.compareUnsigned(one, other) < 0 ? one : other;
    }

    private static int ticks(long nanos) {
        return (int) Math.min(nanos / TICK_NANOS, LAST);
    }

    static boolean isPast(int expiry, int now) {
        return expiry != NEVER && Integer.compareUnsigned(now, expiry) >= 0;
    }

    /// Nanoseconds of a duration, at most about 292 years.
    static long nanos(Duration duration) {
        if (duration.isNegative() || duration.isZero()) {
            throw new IllegalArgumentException("a duration until expiry is positive, not " + duration);
        }
        try {
            return duration.toNanos();
        } catch (ArithmeticException _) {
            return Long.MAX_VALUE;
        }
    }
}
