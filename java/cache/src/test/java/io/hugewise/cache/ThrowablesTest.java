package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/// Errors of the JVM, and exceptions of functions of the cache's user: the cache works as before afterwards.
@Timeout(value = 600, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ThrowablesTest {
    private static final Duration LONG = Duration.ofSeconds(60);

    // --- A store that refuses a change ---------------------------------------------------------------

    private static CacheWriter<Long, byte[]> refusing(long bad, Map<Long, byte[]> rows) {
        return changes -> {
            if (changes.stream().anyMatch(change -> change.key() == bad)) {
                throw new IOException("value too long for column");
            }
            changes.forEach(change -> rows.put(change.key(), change.isRemoval() ? new byte[0] : change.value()));
        };
    }

    @Test
    void aChangeThatTheStoreRefusesHoldsUpNoOther() throws Exception {
        Map<Long, byte[]> rows = new ConcurrentHashMap<>();
        var asked = new AtomicInteger();
        var isGood = new AtomicReference<>(-2L);
        var options = WriteBack.<Long, byte[]>to(changes -> refusing(isGood.get(), rows).writeAll(changes)).window(Duration.ofMillis(200))
                .patience(LONG).refused(3, (change, attempts, error) -> {
                    assertThat(change.key()).isEqualTo(-2);
                    assertThat(attempts).isGreaterThanOrEqualTo(3);
                    assertThat(error).hasMessageContaining("too long");
                    asked.incrementAndGet();
                    return RefusedChange.Decision.KEEP;
                });
        try (var cache = HugeCacheTest.small().writeBack(options).build()) {
            cache.put(-2L, new byte[9]);
            for (long key = 0; asked.get() == 0 || key < 2000; key++) {
                cache.put(key, new byte[1]);
            }
            VirtualThreadsTest.await(() -> cache.health().unwrittenChanges() == 1);
            assertThat(rows).hasSizeGreaterThanOrEqualTo(2000).doesNotContainKey(-2L);
            assertThat(asked).hasValue(1);
            assertThat(cache.health().keptChanges()).isEqualTo(1);
            assertThat(cache.health().refusedChanges()).isEqualTo(1);
            assertThat(cache.getIfPresent(-2L)).hasSize(9);
            isGood.set(-3L);
            cache.flush();
            assertThat(rows.get(-2L)).hasSize(9);
            assertThat(cache.health().keptChanges()).isZero();
        }
    }

    @Test
    void aRefusedChangeCanBeDroppedAndDiverted() throws Exception {
        Map<Long, byte[]> rows = new ConcurrentHashMap<>();
        Map<Long, byte[]> diverted = new ConcurrentHashMap<>();
        var options = WriteBack.to(refusing(-2, rows)).window(Duration.ofMillis(200)).patience(LONG).refused(1, (change, _, _) -> {
            diverted.put(change.key(), change.value());
            return RefusedChange.Decision.DROP;
        });
        try (var cache = HugeCacheTest.small().writeBack(options).build()) {
            cache.put(-2L, new byte[9]);
            for (long key = 0; diverted.isEmpty(); key++) {
                cache.put(key, new byte[1]);
            }
            cache.flush();
            assertThat(diverted.get(-2L)).hasSize(9);
            assertThat(cache.getIfPresent(-2L)).isNull();
        }
    }

    /// Not a refused change, but a store that is down: callers are held back as before.
    @Test
    void aStoreThatRefusesAllHoldsWritersBack() {
        var isDown = new AtomicReference<>(true);
        var options = WriteBack.<Long, byte[]>to(_ -> {
            if (isDown.get()) {
                throw new IOException("no connection");
            }
        }).window(Duration.ofMillis(50)).patience(Duration.ofMillis(300));
        try (var cache = HugeCacheTest.small().writeBack(options).build()) {
            assertThatThrownBy(() -> {
                for (long key = 0; key < 100_000; key++) {
                    cache.put(key, new byte[1]);
                }
            }).isInstanceOf(UnwrittenException.class);
            assertThat(cache.health().refusedChanges()).isZero();
            isDown.set(false);
        }
    }

    /// An error of the writer itself, in the middle of its batches.
    @Test
    void theWriterGoesOnAfterErrors() throws Exception {
        Map<Long, byte[]> rows = new ConcurrentHashMap<>();
        var calls = new AtomicInteger();
        var options = WriteBack.<Long, byte[]>to(changes -> {
            if (calls.incrementAndGet() % 2 == 0) {
                throw new OutOfMemoryError("of a test");
            }
            changes.forEach(change -> rows.put(change.key(), change.value()));
        }).window(Duration.ofMillis(50)).batch(10);
        try (var cache = HugeCacheTest.small().writeBack(options).build()) {
            for (long key = 0; key < 1000; key++) {
                cache.put(key, new byte[1]);
            }
        }
        assertThat(rows).hasSize(1000);
    }

    // --- Refreshes -----------------------------------------------------------------------------------

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void readsGoOnWhenARefreshFails(boolean isRejected) {
        var now = new AtomicLong();
        var loads = new AtomicInteger();
        try (var cache = HugeCacheTest.small().ticker(now::get).refreshAfterWrite(Duration.ofSeconds(1)).loader(_ -> {
            loads.incrementAndGet();
            throw new IOException("no connection");
        }).executor(task -> {
            if (isRejected) {
                loads.incrementAndGet();
                throw new RejectedExecutionException("shut down");
            }
            task.run();
        }).build()) {
            cache.put(1L, new byte[3]);
            now.addAndGet(Duration.ofHours(1).toNanos());
            for (int i = 0; i < 200; i++) {
                assertThat(cache.getIfPresent(1L)).hasSize(3);
            }
            assertThat(loads.get()).isBetween(1, 100);
            assertThat(cache.health().refreshFailures()).isEqualTo(loads.get());
        }
    }

    @Test
    void allOfTheseErrorsAreCounted() throws Exception {
        try (var cache = HugeCacheTest.small().removalListener((_, _, _) -> {
            throw new StackOverflowError("of a test");
        }).build()) {
            cache.put(1L, new byte[1]);
            cache.invalidate(1L);
            assertThat(List.of(cache.health().listenerFailures(), cache.health().backgroundFailures())).containsExactly(1L, 0L);
        }
    }
}
