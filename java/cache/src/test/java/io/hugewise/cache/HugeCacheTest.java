package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.hugewise.memory.Backing;
import java.io.File;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class HugeCacheTest {
    private static final long SIZE = 16 << 20;

    static HugeCacheBuilder<Long, byte[]> small() {
        return HugeCache.builder(Serializers.longs(), Serializers.bytes())
                .maximumBytes(SIZE)
                .executor(Runnable::run)
                .memory(options -> options.only(Backing.base()));
    }

    /// Bytes that depend on the key.
    static byte[] value(long key, int size) {
        byte[] bytes = new byte[size];
        new Random(key).nextBytes(bytes);
        return bytes;
    }

    @Test
    void behavesAsAMapWhileNothingIsEvicted() {
        var random = new Random(1);
        Map<Long, byte[]> model = new HashMap<>();
        try (var cache = small().build()) {
            for (int i = 0; i < 300_000; i++) {
                long key = random.nextInt(20_000);
                switch (random.nextInt(6)) {
                    case 0, 1 -> {
                        byte[] value = value(i, random.nextInt(60));
                        cache.put(key, value);
                        model.put(key, value);
                    }
                    case 2 -> {
                        byte[] value = value(i, 10);
                        assertThat(cache.putIfAbsent(key, value)).isEqualTo(model.putIfAbsent(key, value));
                    }
                    case 3 -> assertThat(cache.asMap().remove(key)).isEqualTo(model.remove(key));
                    case 4 -> {
                        byte[] present = model.get(key);
                        boolean isReplaced = present != null && cache.asMap().replace(key, present, value(i, 5));
                        assertThat(isReplaced).isEqualTo(present != null);
                        if (present != null) {
                            model.put(key, value(i, 5));
                        }
                    }
                    default -> assertThat(cache.getIfPresent(key)).isEqualTo(model.get(key));
                }
            }
            assertThat(cache.estimatedSize()).isEqualTo(model.size());
            assertThat(cache.stats().evictions()).isZero();
            Map<Long, byte[]> seen = new HashMap<>();
            cache.asMap().forEach((key, value) -> assertThat(seen.put(key, value)).isNull());
            assertThat(seen.keySet()).isEqualTo(model.keySet());
            model.forEach((key, value) -> assertThat(seen.get(key)).isEqualTo(value));
        }
    }

    @Test
    void staysWithinItsLimitAndUsesIt() {
        try (var cache = small().build()) {
            long live = 0;
            for (long key = 0; key < 200_000; key++) {
                cache.put(key, value(key, 500));
                assertThat(cache.usedBytes()).isLessThanOrEqualTo(cache.maximumBytes());
            }
            for (byte[] value : cache.asMap().values()) {
                live += value.length + Long.BYTES;
            }
            assertThat(live).isGreaterThan((long) (0.9 * SIZE));
            // Nothing is evicted in advance any more.
            cache.cleanUp();
            assertThat(cache.stats().evictions()).isEqualTo(200_000 - cache.estimatedSize());
            assertThat(cache.stats().movedBytes()).isLessThanOrEqualTo((long) (Compaction.MOST_MOVED * cache.stats().insertedBytes()));
        }
    }

    @Test
    void keepsKeysThatAreUsedOftenDuringAScan() {
        try (var cache = small().build()) {
            for (long round = 0; round < 50; round++) {
                for (long key = 0; key < 2_000; key++) {
                    cache.get(key, k -> value(k, 500));
                }
                for (long key = 0; key < 10_000; key++) {
                    cache.put(1_000_000 + round * 10_000 + key, value(key, 500));
                }
            }
            long kept = cache.asMap().keySet().stream().filter(key -> key < 2_000).count();
            assertThat(kept).isGreaterThan(1_950);
        }
    }

    @Test
    void removedEntriesAreReusedWithoutEvictions() {
        try (var cache = small().build()) {
            for (long key = 0; key < 200_000; key++) {
                cache.put(key, value(key, 500));
                if (key >= 1000) {
                    cache.invalidate(key - 1000);
                }
            }
            assertThat(cache.stats().evictions()).isZero();
            assertThat(cache.estimatedSize()).isEqualTo(1000);
        }
    }

    @Test
    void valuesMayBeLargerThanSegments() {
        try (var cache = small().build()) {
            int found = 0;
            for (long key = 0; key < 200; key++) {
                byte[] value = value(key, 300_000);
                cache.put(key, value);
                // The cache frees memory in advance at any moment; what it evicts may be the newest entry.
                assertThat(cache.getIfPresent(key)).isIn(null, value);
                found += cache.read(key, bytes -> {
                            assertThat(bytes.toArray(ValueLayout.JAVA_BYTE)).isEqualTo(value);
                            return 1;
                        })
                        .orElse(0);
            }
            assertThat(found).isGreaterThan(100);
            assertThat(cache.estimatedSize()).isGreaterThan(SIZE * 4 / 10 / 300_000);
            for (Map.Entry<Long, byte[]> entry : cache.asMap().entrySet()) {
                assertThat(entry.getValue()).isEqualTo(value(entry.getKey(), 300_000));
            }
            cache.invalidateAll();
            cache.cleanUp();
            assertThat(cache.usedBytes()).isLessThanOrEqualTo(cache.indexBytes() + 3 * 65536);
        }
    }

    @Test
    void aValueThatIsTooLargeReplacesWithoutBeingAdded() {
        try (var cache = small().build()) {
            cache.put(1L, new byte[10]);
            cache.put(1L, new byte[12 << 20]);

            assertThat(cache.getIfPresent(1L)).isNull();
            assertThat(cache.stats().rejections()).isEqualTo(1);
        }
    }

    @Test
    void indexGrowsWithTheNumberOfEntries() {
        try (var cache = HugeCache.builder(Serializers.longs(), Serializers.longs()).maximumBytes(64 << 20)
                .memory(options -> options.only(Backing.base())).build()) {
            for (long key = 0; key < 500_000; key++) {
                cache.put(key, ~key);
            }
            for (long key = 0; key < 500_000; key++) {
                assertThat(cache.getIfPresent(key)).isEqualTo(~key);
            }
            assertThat(cache.store().index.bytes() / 500_000.0).isLessThan(16);
        }
    }

    @Test
    void limitCanBeLoweredAndRaised() {
        try (var cache = small().build()) {
            // A segment less than SIZE if the memory is not aligned to segments.
            long most = cache.maximumBytes();
            for (long key = 0; key < 60_000; key++) {
                cache.put(key, value(key, 500));
            }
            assertThat(cache.setMaximumBytes(SIZE / 2)).isTrue();
            assertThat(cache.usedBytes()).isLessThanOrEqualTo(SIZE / 2);
            for (long key = 0; key < 60_000; key++) {
                cache.put(key, value(key, 500));
                assertThat(cache.usedBytes()).isLessThanOrEqualTo(SIZE / 2);
            }
            long half = cache.estimatedSize();
            cache.setMaximumBytes(most);
            for (long key = 0; key < 60_000; key++) {
                cache.put(key, value(key, 500));
            }
            assertThat(cache.estimatedSize()).isGreaterThan(half * 17 / 10);
            assertThatThrownBy(() -> cache.setMaximumBytes(2 * SIZE)).isInstanceOf(IllegalArgumentException.class);
        }
    }

    @Test
    void expiredEntriesAreNotReadAndTheirMemoryIsFreed() {
        var now = new AtomicLong();
        List<RemovalCause> causes = new java.util.concurrent.CopyOnWriteArrayList<>();
        try (var cache = small().ticker(now::get).expireAfterWrite(Duration.ofSeconds(10))
                .removalListener((key, value, cause) -> causes.add(cause)).build()) {
            for (long key = 0; key < 10_000; key++) {
                cache.put(key, value(key, 100));
            }
            cache.put(-1L, new byte[1], Duration.ofHours(1));
            now.set(Duration.ofMillis(9_900).toNanos());
            assertThat(cache.getIfPresent(7L)).isEqualTo(value(7, 100));
            now.set(Duration.ofSeconds(10).toNanos());
            assertThat(cache.getIfPresent(7L)).isNull();
            assertThat(cache.asMap().keySet()).containsExactly(-1L);
            assertThat(cache.putIfAbsent(7L, new byte[3])).isNull();
            cache.cleanUp();
            assertThat(cache.getIfPresent(7L)).hasSize(3);
            assertThat(cache.getIfPresent(-1L)).hasSize(1);
            assertThat(cache.usedBytes()).isLessThan(cache.indexBytes() + 4 * 65536);
        }
        assertThat(causes).contains(RemovalCause.EXPIRED).doesNotContain(RemovalCause.SIZE);
    }

    @Test
    void readsProlongEntriesThatExpireAfterAccess() {
        var now = new AtomicLong();
        try (var cache = small().ticker(now::get).expireAfterAccess(Duration.ofSeconds(10)).build()) {
            cache.put(1L, new byte[1]);
            cache.put(2L, new byte[2]);
            for (int second = 0; second < 60; second += 5) {
                now.set(Duration.ofSeconds(second).toNanos());
                cache.cleanUp();
                assertThat(cache.getIfPresent(1L)).hasSize(1);
            }
            assertThat(cache.getIfPresent(2L)).isNull();
        }
    }

    @Test
    void oneThreadLoadsAndOthersWait() throws Exception {
        var loads = new AtomicInteger();
        var begun = new CountDownLatch(1);
        var end = new CountDownLatch(1);
        try (var cache = small().build()) {
            var first = CompletableFuture.supplyAsync(() -> cache.get(1L, key -> {
                loads.incrementAndGet();
                begun.countDown();
                await(end);
                return value(key, 5);
            }));
            begun.await();
            var second = new CompletableFuture<byte[]>();
            Thread waiting = Thread.ofVirtual().start(() -> second.complete(cache.get(1L, _ -> {
                loads.incrementAndGet();
                return new byte[0];
            })));
            while (waiting.getState() != Thread.State.WAITING) {
                Thread.onSpinWait();
            }
            end.countDown();
            assertThat(second.get()).isEqualTo(first.get()).isEqualTo(value(1, 5));
            assertThat(loads).hasValue(1);
            assertThatThrownBy(() -> cache.get(2L, _ -> {
                throw new IllegalArgumentException("no such row");
            })).hasMessage("no such row");
            assertThat(cache.get(2L, _ -> null)).isNull();
            assertThat(cache.get(2L, _ -> new byte[] {1})).hasSize(1);
        }
    }

    @Test
    void aKeyThatIsRemovedWhileItIsLoadedIsNotAdded() {
        try (var cache = small().build()) {
            byte[] loaded = cache.get(1L, key -> {
                cache.invalidate(key);
                return new byte[] {1};
            });
            assertThat(loaded).hasSize(1);
            assertThat(cache.getIfPresent(1L)).isNull();
        }
    }

    @Test
    void listenerIsCalledOnceForEachRemovedEntry() throws InterruptedException {
        Map<Long, RemovalCause> removed = new ConcurrentHashMap<>();
        try (var cache = small().removalListener((key, value, cause) -> {
            assertThat(value).isEqualTo(value(key, 500));
            assertThat(removed.put(key, cause)).isNull();
        }).build()) {
            for (long key = 0; key < 60_000; key++) {
                cache.put(key, value(key, 500));
            }
            // Nothing is evicted in advance any more.
            cache.cleanUp();
            VirtualThreadsTest.await(() -> removed.size() == 60_000 - cache.estimatedSize());
            assertThat(removed).doesNotContainValue(RemovalCause.REPLACED);
            long present = cache.asMap().keySet().iterator().next();
            cache.put(present, value(present, 500));
            assertThat(removed.remove(present)).isEqualTo(RemovalCause.REPLACED);
            cache.invalidate(present);
            assertThat(removed.get(present)).isEqualTo(RemovalCause.EXPLICIT);
        }
    }

    @Test
    void anExecutorThatRefusesTheListenerLosesNoMemory() {
        try (var cache = small().removalListener((_, _, _) -> {}).executor(task -> {
            throw new RejectedExecutionException("shut down");
        }).build()) {
            for (long key = 0; key < 100_000; key++) {
                cache.put(key, new byte[500]);
            }
            assertThat(cache.stats().evictions()).isGreaterThan(60_000);
            assertThat(cache.stats().rejections()).isZero();
            cache.invalidateAll();
            cache.cleanUp();
            // The index, and what is appended to.
            assertThat(cache.usedBytes()).isLessThanOrEqualTo(cache.indexBytes() + 3 * 65536);
        }
    }

    /// The thread of the cache evicts, and is stopped by its listener. Meanwhile others use the memory that is free.
    @Test
    void putsDoNotWaitForAnEvictionWhileMemoryIsFree() throws Exception {
        var begun = new CountDownLatch(1);
        var end = new CountDownLatch(1);
        try (var cache = small().removalListener((_, _, _) -> {
            begun.countDown();
            await(end);
        }).build()) {
            try {
                long key = 0;
                for (; cache.usedBytes() <= SIZE - 5 * 65536; key++) {
                    cache.put(key, new byte[500]);
                }
                assertThat(begun.await(60, TimeUnit.SECONDS)).isTrue();
                long first = key;
                CompletableFuture.runAsync(() -> {
                    for (long other = first; other < first + 200; other++) {
                        cache.put(other, new byte[500]);
                    }
                }).get(60, TimeUnit.SECONDS);
                assertThat(cache.getIfPresent(first + 199)).hasSize(500);
            } finally {
                end.countDown();
            }
        }
    }

    @Test
    void memoryThatIsReadStaysUntilTheEnd() {
        try (var cache = small().build()) {
            cache.put(0L, value(0, 500));
            boolean isSame = cache.read(0L, bytes -> {
                for (long key = 1; key < 40_000; key++) {
                    long other = key;
                    CompletableFuture.runAsync(() -> cache.put(other, value(other, 500))).join();
                    if (cache.stats().rejections() > 0) {
                        break;
                    }
                }
                return Arrays.equals(bytes.toArray(ValueLayout.JAVA_BYTE), value(0, 500));
            }).orElseThrow();
            assertThat(isSame).isTrue();
            cache.put(1L, value(1, 500));
            assertThat(cache.getIfPresent(1L)).isNotNull();
        }
    }

    @Test
    void memoryThatIsReadCannotBeWritten() {
        try (var cache = small().build()) {
            cache.put(0L, new byte[8]);
            assertThatThrownBy(() -> cache.read(0L, bytes -> {
                bytes.set(ValueLayout.JAVA_BYTE, 0, (byte) 1);
                return 0;
            })).isInstanceOf(IllegalArgumentException.class);
        }
    }

    @Test
    void aSerializerThatFailsLeavesTheCacheUsable() {
        Serializer<byte[]> failing = new Serializer<>() {
            @Override
            public int size(byte[] value) {
                return value.length;
            }

            @Override
            public void write(byte[] value, MemorySegment to) {
                if (value[0] == 0) {
                    throw new IllegalStateException("not serializable");
                }
                to.copyFrom(MemorySegment.ofArray(value));
            }

            @Override
            public byte[] read(MemorySegment from) {
                return from.toArray(ValueLayout.JAVA_BYTE);
            }
        };
        try (var cache = HugeCache.builder(Serializers.longs(), failing).maximumBytes(SIZE)
                .memory(options -> options.only(Backing.base())).build()) {
            for (long key = 0; key < 100_000; key++) {
                byte[] value = new byte[500];
                value[0] = (byte) (key % 2);
                long number = key;
                if (value[0] == 0) {
                    assertThatThrownBy(() -> cache.put(number, value)).hasMessage("not serializable");
                } else {
                    cache.put(number, value);
                    assertThat(cache.getIfPresent(number)).isNotNull();
                }
            }
        }
    }

    @Test
    void serializersReadWhatTheyWrote() {
        assertThat(copy(Serializers.ints(), -5)).isEqualTo(-5);
        assertThat(copy(Serializers.doubles(), -0.5)).isEqualTo(-0.5);
        assertThat(copy(Serializers.strings(), "äöü €𝄞 plain")).isEqualTo("äöü €𝄞 plain");
        assertThat(copy(Serializers.strings(), "")).isEmpty();
        assertThat(copy(Serializers.buffers(), ByteBuffer.wrap(new byte[] {1, 2, 3}).position(1))).isEqualTo(ByteBuffer.wrap(new byte[] {2, 3}));
        assertThat(copy(Serializers.segments(), MemorySegment.ofArray(new long[] {7})).get(ValueLayout.JAVA_LONG_UNALIGNED, 0)).isEqualTo(7);
    }

    private static <T> T copy(Serializer<T> serializer, T value) {
        try (var cache = HugeCache.builder(Serializers.strings(), serializer).maximumBytes(4 << 20)
                .memory(options -> options.only(Backing.base())).build()) {
            cache.put("key ä", value);
            return cache.getIfPresent("key ä");
        }
    }

    @Test
    @Tag("pools")
    void theExampleOfThePageRuns(@TempDir Path folder) throws Exception {
        Path page = Path.of("../../docs/cache.md");
        assumeTrue(Files.exists(page), "no docs/cache.md here");
        String example = Files.readString(page).split("```java\n", 2)[1].split("```\n", 2)[0];
        Path source = Files.writeString(folder.resolve("Cache.java"), example);
        String path = System.getProperty("jdk.module.path", "") + File.pathSeparator + System.getProperty("java.class.path");
        Process java = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED", "-cp", path, source.toString()).redirectErrorStream(true).start();
        List<String> lines = java.inputReader().lines().toList();
        assertThat(java.waitFor()).as(lines.toString()).isZero();
        assertThat(lines).hasSize(3).startsWith("page of /index.html", "0.0");
        assertThat(lines.getLast()).contains("on pages of");
    }

    @Test
    void missRatiosOfOtherLimitsAreEstimated() {
        var random = new Random(1);
        try (var cache = small().estimateMissRatios().build()) {
            assertThat(cache.missRatio(SIZE)).isEmpty();
            // Twice the limit, requested with equal probability.
            int keys = (int) (2 * SIZE / 550);
            for (int i = 0; i < 600_000; i++) {
                long key = random.nextInt(keys);
                cache.get(key, k -> value(k, 500));
            }
            double missRatio = 1 - cache.stats().hitRatio();
            assertThat(cache.missRatio(SIZE).getAsDouble()).isCloseTo(missRatio, within(0.08));
            assertThat(cache.missRatio(SIZE / 2).getAsDouble()).isCloseTo(0.75, within(0.08));
            assertThat(cache.missRatio(2 * SIZE).getAsDouble()).isLessThan(0.2);
        }
    }

    @Test
    void closedCachesRefuseAccess() {
        var cache = small().build();
        cache.close();
        cache.close();
        assertThatThrownBy(() -> cache.getIfPresent(1L)).isInstanceOf(IllegalStateException.class);
        assertThatThrownBy(() -> cache.put(1L, new byte[1])).isInstanceOf(IllegalStateException.class);
        assertThatThrownBy(() -> cache.asMap().keySet().iterator().hasNext()).isInstanceOf(IllegalStateException.class);
    }

    static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }
}
