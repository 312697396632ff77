package io.hugewise.cache;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/// Times at which entries expire, by the options of a cache.
final class Expiration<K, V> {
    final boolean isPossible;
    final boolean isVariable;
    final Clock clock;
    /// 0 if entries do not expire after a write.
    volatile long writeNanos;
    /// 0 if entries do not expire after an access.
    volatile long accessNanos;
    private final @Nullable Expiry<? super K, ? super V> expiry;

    Expiration(HugeCacheBuilder<K, V> options, Clock clock) {
        this.clock = clock;
        isPossible = options.canExpire();
        isVariable = options.isVariable;
        writeNanos = options.writeNanos;
        accessNanos = options.accessNanos;
        expiry = options.expiry;
    }

    /// Whether the time of a write is needed to know when an entry expires that is read.
    static boolean needsWriteTime(HugeCacheBuilder<?, ?> options) {
        return options.writeNanos > 0 && options.accessNanos > 0;
    }

    /// Whether it depends on the present entry when a new one expires.
    boolean dependsOnPresent() {
        return expiry != null;
    }

    /// When an entry expires that is written.
    ///
    /// @param present when the present entry expires; empty if there is none
    int afterWrite(K key, V value, @Nullable Integer present) {
        if (expiry != null) {
            return after(present == null
                    ? expiry.expireAfterCreate(key, value)
                    : expiry.expireAfterUpdate(key, value, remaining(present)));
        }
        long nanos = Math.min(positive(writeNanos), positive(accessNanos));
        return nanos == Long.MAX_VALUE ? Clock.NEVER : clock.after(nanos);
    }

    /// When entries expire that are read now, if they do after an access. It is called before a read.
    int afterAccess() {
        return accessNanos == 0 ? Clock.NEVER : clock.after(accessNanos);
    }

    /// When an entry expires that is read without its value as an object.
    ///
    /// @param accessed of [#afterAccess]
    /// @param written when it was written, if entries expire both after a write and an access
    int afterRead(int current, int accessed, int written) {
        if (accessNanos == 0) {
            return current;
        }
        return writeNanos == 0 ? accessed : Clock.earlier(accessed, Clock.plus(written, writeNanos));
    }

    /// When an entry expires that is read.
    int afterRead(K key, V value, int current) {
        if (expiry == null) {
            return current;
        }
        Duration remaining = remaining(current);
        Duration next = expiry.expireAfterRead(key, value, remaining);
        return next.equals(remaining) ? current : after(next);
    }

    boolean isChangedByReads() {
        return accessNanos > 0 || expiry != null;
    }

    int after(Duration duration) {
        return duration.isZero() || duration.isNegative() ? Clock.PAST : clock.after(Clock.nanos(duration));
    }

    Duration remaining(int time) {
        return Duration.ofNanos(clock.until(time));
    }

    private static long positive(long nanos) {
        return nanos == 0 ? Long.MAX_VALUE : nanos;
    }
}
