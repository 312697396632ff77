package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.hugewise.cache.CacheWriter.Change;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;

class WriteBackTest {
    private static final Duration LONG = Duration.ofHours(1);

    private final List<List<Change<Long, byte[]>>> batches = new ArrayList<>();
    private final Map<Long, byte[]> rows = new ConcurrentHashMap<>();

    private void write(List<Change<Long, byte[]>> changes) {
        batches.add(changes);
        changes.forEach(change -> {
            if (change.isRemoval()) {
                rows.remove(change.key());
            } else {
                rows.put(change.key(), change.value());
            }
        });
    }

    private static byte[] value(long version) {
        return new byte[] {(byte) version};
    }

    @Test
    void changesAreWrittenInBatchesByKeyEachKeyOnce() {
        var options = WriteBack.to(this::write).window(LONG).batch(4).ordered(Comparator.<Long>reverseOrder());
        try (var cache = HugeCacheTest.small().writeBack(options).build()) {
            for (long round = 0; round < 3; round++) {
                for (long key = 0; key < 4; key++) {
                    cache.put(key, value(round));
                }
            }
            cache.invalidate(2L);
            assertThat(batches).isEmpty();
            cache.flush();
            assertThat(batches.getFirst()).extracting(Change::key).containsExactly(3L, 2L, 1L, 0L);
            assertThat(batches.getFirst()).extracting(Change::isRemoval).containsExactly(false, true, false, false);
            assertThat(batches.getFirst().getFirst().value()).isEqualTo(value(2));
            // Later entries of these keys in the queue have nothing to write.
            assertThat(batches).hasSize(1);
            cache.put(5L, value(5));
        }
        assertThat(rows.keySet()).containsExactlyInAnyOrder(0L, 1L, 3L, 5L);
    }

    @Test
    void changesAreWrittenByAge() throws Exception {
        var written = new CountDownLatch(1);
        var options = WriteBack.<Long, byte[]>to(_ -> written.countDown()).window(Duration.ofMillis(20));
        try (var cache = HugeCacheTest.small().writeBack(options).build()) {
            cache.put(1L, value(1));
            written.await();
        }
    }

    @Test
    void aBatchDoesNotMarkANewerChangeAsWritten() throws Exception {
        var begun = new CountDownLatch(1);
        var end = new CountDownLatch(1);
        var options = WriteBack.<Long, byte[]>to(changes -> {
            begun.countDown();
            end.await();
            write(changes);
        }).window(Duration.ofMillis(10)).maximumUnwritten(1000);
        try (var cache = HugeCacheTest.small().writeBack(options.window(Duration.ofSeconds(20))).build()) {
            cache.put(1L, value(1));
            Thread flush = Thread.ofVirtual().start(cache::flush);
            begun.await();
            cache.put(1L, value(2));
            cache.invalidate(2L);
            end.countDown();
            flush.join();
            assertThat(rows.get(1L)).isEqualTo(value(1));
            cache.flush();
            assertThat(rows.get(1L)).isEqualTo(value(2));
        }
    }

    @Test
    void aFailingStoreHoldsWritersBackAndNothingIsLost() {
        var isFailing = new java.util.concurrent.atomic.AtomicBoolean(true);
        var options = WriteBack.<Long, byte[]>to(changes -> {
            if (isFailing.get()) {
                throw new IOException("disk full");
            }
            write(changes);
        }).window(LONG).maximumUnwritten(10).patience(Duration.ofMillis(200));
        try (var cache = HugeCacheTest.small().writeBack(options).build()) {
            for (long key = 0; key < 10; key++) {
                cache.put(key, value(key));
            }
            assertThatThrownBy(() -> cache.put(10L, value(10))).isInstanceOf(UnwrittenException.class).hasRootCauseMessage("disk full");
            assertThat(cache.getIfPresent(10L)).isNull();
            assertThatThrownBy(cache::flush).isInstanceOf(UnwrittenException.class);
            assertThatThrownBy(cache::close).isInstanceOf(UnwrittenException.class);
            // It stays open.
            assertThat(cache.getIfPresent(9L)).isEqualTo(value(9));
            isFailing.set(false);
            cache.put(11L, value(11));
        }
        assertThat(rows.keySet()).containsExactlyInAnyOrderElementsOf(LongStream.of(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11).boxed().toList());
    }

    @Test
    void changesThatAreEvictedOrFindNoMemoryAreWritten() {
        var options = WriteBack.to(this::write).window(LONG);
        try (var cache = HugeCacheTest.small().writeBack(options).build()) {
            for (long key = 0; key < 100_000; key++) {
                cache.put(key, HugeCacheTest.value(key, 500));
                if (key % 1000 == 999) {
                    // Read back while changes are in the cache, on the heap, and in the store.
                    long older = key / 2;
                    assertThat(cache.get(older, rows::get)).isEqualTo(HugeCacheTest.value(older, 500));
                }
            }
            assertThat(cache.stats().evictions()).isPositive();
            cache.put(-1L, new byte[12 << 20]);
            assertThat(cache.get(-1L, rows::get)).hasSize(12 << 20);
        }
        assertThat(rows).hasSize(100_001);
        rows.remove(-1L);
        rows.forEach((key, value) -> assertThat(value).isEqualTo(HugeCacheTest.value(key, 500)));
    }

    @Test
    void loadsSeeChangesThatHaveExpiredOrRemoveTheirKey() {
        var now = new AtomicLong();
        var options = WriteBack.to(this::write).window(LONG);
        try (var cache = HugeCacheTest.small().ticker(now::get).expireAfterWrite(Duration.ofSeconds(1)).writeBack(options).build()) {
            rows.put(1L, value(1));
            rows.put(2L, value(2));
            cache.put(1L, value(11));
            cache.invalidate(2L);
            assertThat(cache.asMap()).containsOnlyKeys(1L);
            now.set(Duration.ofSeconds(2).toNanos());
            assertThat(cache.getIfPresent(1L)).isNull();
            assertThat(cache.get(1L, rows::get)).isEqualTo(value(11));
            assertThat(cache.get(2L, rows::get)).isNull();
        }
    }

    @Test
    void listenersDoNotSeeRemovalsAsValues() {
        List<RemovalCause> causes = new ArrayList<>();
        var options = WriteBack.to(this::write).window(LONG);
        try (var cache = HugeCacheTest.small().removalListener((_, value, cause) -> {
            assertThat(value).hasSize(1);
            causes.add(cause);
        }).writeBack(options).build()) {
            cache.put(1L, value(1));
            cache.put(1L, value(2));
            assertThat(cache.asMap().remove(1L)).isEqualTo(value(2));
            assertThat(cache.asMap().remove(1L)).isNull();
            assertThat(cache.asMap().remove(1L, value(2))).isFalse();
            cache.put(1L, value(3));
            assertThat(cache.asMap().remove(1L, value(2))).isFalse();
            assertThat(cache.asMap().remove(1L, value(3))).isTrue();
            cache.flush();
            cache.cleanUp();
        }
        assertThat(causes).containsExactly(RemovalCause.REPLACED, RemovalCause.EXPLICIT, RemovalCause.EXPLICIT);
        assertThat(rows).isEmpty();
    }

    @Test
    void readsSeeUnwrittenChangesWhoseEntriesWereEvicted() {
        var isFailing = new AtomicBoolean(true);
        var options = WriteBack.<Long, byte[]>to(changes -> {
            if (isFailing.get()) {
                throw new IOException("no connection");
            }
            write(changes);
        }).window(LONG);
        try (var cache = HugeCacheTest.small().writeBack(options).build()) {
            for (long key = 0; key < 40_000; key++) {
                cache.put(key, value(key));
                cache.put(key, HugeCacheTest.value(key, 500));
            }
            assertThat(cache.stats().evictions()).isPositive();
            for (long key = 0; key < 40_000; key++) {
                byte[] view = cache.read(key, bytes -> bytes.toArray(ValueLayout.JAVA_BYTE)).orElseThrow();
                assertThat(view).isEqualTo(HugeCacheTest.value(key, 500)).isEqualTo(cache.getIfPresent(key));
            }
            cache.invalidate(1L);
            assertThat(cache.read(1L, MemorySegment::byteSize)).isEmpty();
            isFailing.set(false);
        }
        assertThat(rows).hasSize(39_999);
    }

    @Test
    void aRefreshSeesUnwrittenChanges() {
        var options = WriteBack.to(this::write).window(LONG);
        try (var cache = HugeCacheTest.small().loader(rows::get).writeBack(options).build()) {
            rows.put(1L, value(1));
            cache.put(1L, value(2));
            assertThat(cache.refresh(1L).join()).isEqualTo(value(2));
            assertThat(cache.getIfPresent(1L)).isEqualTo(value(2));
        }
        assertThat(rows.get(1L)).isEqualTo(value(2));
    }

    @Test
    void writeThroughWritesBeforeTheCacheAndDropsWhatIsUncertain() {
        try (var cache = HugeCacheTest.small().writeThrough(changes -> {
            if (changes.getFirst().key() == 13L) {
                throw new IOException("disk full");
            }
            write(changes);
        }).build()) {
            cache.put(1L, value(1));
            assertThat(rows.get(1L)).isEqualTo(value(1));
            assertThat(cache.asMap().merge(1L, value(2), (old, added) -> value(old[0] + added[0]))).isEqualTo(value(3));
            assertThat(rows.get(1L)).isEqualTo(value(3));
            assertThat(cache.putIfAbsent(1L, value(4))).isEqualTo(value(3));
            assertThat(cache.get(13L, _ -> value(5))).isEqualTo(value(5));
            assertThat(batches).hasSize(2);
            assertThatThrownBy(() -> cache.put(13L, value(6))).isInstanceOf(UnwrittenException.class).hasRootCauseMessage("disk full");
            assertThat(cache.getIfPresent(13L)).isNull();
            rows.put(7L, value(7));
            cache.invalidate(7L);
            cache.invalidate(1L);
            assertThat(rows).isEmpty();
            assertThat(cache.getIfPresent(1L)).isNull();
        }
    }
}
