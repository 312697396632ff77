package io.hugewise.jcache;

import java.util.function.Supplier;
import javax.cache.expiry.Duration;
import javax.cache.expiry.ExpiryPolicy;
import org.jspecify.annotations.Nullable;

/// Times of expiry in milliseconds since 1970, by a policy. If the policy throws an exception, an entry that is created
/// does not expire, and another keeps its time.
final class Expirations {
    static final long NEVER = Long.MAX_VALUE;

    private final ExpiryPolicy policy;

    Expirations(ExpiryPolicy policy) {
        this.policy = policy;
    }

    static long now() {
        return System.currentTimeMillis();
    }

    static boolean isPast(long expiry) {
        return expiry <= now();
    }

    long afterCreation() {
        return after(policy::getExpiryForCreation, NEVER);
    }

    long afterUpdate(long current) {
        return after(policy::getExpiryForUpdate, current);
    }

    long afterAccess(long current) {
        return after(policy::getExpiryForAccess, current);
    }

    private static long after(Supplier<@Nullable Duration> duration, long current) {
        Duration after;
        try {
            after = duration.get();
        } catch (RuntimeException _) {
            return current;
        }
        return after == null ? current : after.isEternal() ? NEVER : after.getAdjustedTime(now());
    }
}
