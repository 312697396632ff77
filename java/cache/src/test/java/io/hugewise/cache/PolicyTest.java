package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class PolicyTest {
    private final AtomicLong now = new AtomicLong();

    private void advanceTo(long seconds) {
        now.set(Duration.ofSeconds(seconds).toNanos());
    }

    @Test
    void eachEntryExpiresAtItsOwnTime() {
        var expiry = new Expiry<Long, byte[]>() {
            @Override
            public Duration expireAfterCreate(Long key, byte[] value) {
                return Duration.ofSeconds(value.length);
            }

            @Override
            public Duration expireAfterUpdate(Long key, byte[] value, Duration remaining) {
                return remaining.plusSeconds(100);
            }

            @Override
            public Duration expireAfterRead(Long key, byte[] value, Duration remaining) {
                return key == 2 ? Duration.ofSeconds(50) : remaining;
            }
        };
        try (var cache = HugeCacheTest.small().ticker(now::get).expireAfter(expiry).build()) {
            cache.put(1L, new byte[10]);
            cache.put(2L, new byte[10]);
            cache.put(3L, new byte[10]);
            cache.put(4L, new byte[0]);
            assertThat(cache.getIfPresent(4L)).isNull();
            advanceTo(5);
            cache.put(3L, new byte[1]);
            assertThat(cache.getIfPresent(1L)).isNotNull();
            assertThat(cache.getIfPresent(2L)).isNotNull();
            advanceTo(10);
            assertThat(cache.getIfPresent(1L)).isNull();
            assertThat(cache.getIfPresent(2L)).isNotNull();
            // Read at 10 s the last time.
            advanceTo(59);
            assertThat(cache.asMap()).containsKey(2L);
            advanceTo(61);
            assertThat(cache.asMap()).doesNotContainKey(2L).containsKey(3L);
            advanceTo(111);
            assertThat(cache.asMap()).doesNotContainKey(3L);
        }
    }

    @Test
    void theEarlierOfTwoTimesCounts() {
        try (var cache = HugeCacheTest.small().ticker(now::get)
                .expireAfterWrite(Duration.ofSeconds(20)).expireAfterAccess(Duration.ofSeconds(6)).build()) {
            cache.put(1L, new byte[1]);
            cache.put(2L, new byte[1]);
            for (int second = 5; second < 20; second += 5) {
                advanceTo(second);
                assertThat(cache.getIfPresent(1L)).isNotNull();
            }
            assertThat(cache.getIfPresent(2L)).isNull();
            advanceTo(20);
            assertThat(cache.getIfPresent(1L)).isNull();
        }
    }

    @Test
    void timesCanBeReadAndChanged() {
        try (var cache = HugeCacheTest.small().ticker(now::get).expireAfterWrite(Duration.ofSeconds(20)).build()) {
            Policy<Long, byte[]> policy = cache.policy();
            var single = policy.expireVariably().orElseThrow();
            cache.put(1L, new byte[1]);
            advanceTo(5);
            assertThat(single.getExpiresAfter(1L).orElseThrow()).isBetween(Duration.ofMillis(14_960), Duration.ofSeconds(15));
            assertThat(single.getExpiresAfter(2L)).isEmpty();
            single.setExpiresAfter(1L, Duration.ofSeconds(100));
            single.setExpiresAfter(2L, Duration.ofSeconds(100));
            assertThat(single.putIfAbsent(3L, new byte[3], Duration.ofSeconds(1))).isNull();
            assertThat(single.putIfAbsent(1L, new byte[3], Duration.ofSeconds(1))).hasSize(1);
            var all = policy.expireAfterWrite().orElseThrow();
            assertThat(all.getExpiresAfter()).isEqualTo(Duration.ofSeconds(20));
            all.setExpiresAfter(Duration.ofSeconds(2));
            cache.put(4L, new byte[4]);
            advanceTo(8);
            assertThat(cache.asMap()).containsOnlyKeys(1L);
            assertThat(policy.getIfPresentQuietly(1L)).hasSize(1);
            assertThat(cache.stats().hits()).isZero();
            assertThat(policy.expireAfterAccess()).isEmpty();
            assertThat(policy.refreshAfterWrite()).isEmpty();
        }
        try (var cache = HugeCacheTest.small().build()) {
            assertThat(cache.policy().expireVariably()).isEmpty();
            assertThatThrownBy(() -> cache.put(1L, new byte[1], Duration.ofSeconds(1))).isInstanceOf(IllegalStateException.class);
        }
    }

    @Test
    void theLimitCanBeReadAndChanged() {
        try (var cache = HugeCacheTest.small().build()) {
            var eviction = cache.policy().eviction();
            assertThat(eviction.getMaximum()).isEqualTo(16 << 20);
            eviction.setMaximum(8 << 20);
            assertThat(cache.maximumBytes()).isEqualTo(8 << 20);
            cache.cleanUp();
            assertThat(eviction.weightedSize()).isEqualTo(cache.usedBytes()).isPositive();
        }
    }
}
