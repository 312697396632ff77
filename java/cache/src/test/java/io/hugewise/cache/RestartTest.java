package io.hugewise.cache;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.hugewise.memory.HugeFile;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/// Caches in files on the machine's own tmpfs.
class RestartTest {
    private static final long SIZE = 8 << 20;

    @RegisterExtension
    private final SharedMemoryFolder folder = new SharedMemoryFolder();

    private static HugeCacheBuilder<Long, byte[]> builder(Path file) {
        return HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(SIZE).file(file);
    }

    /// Changes entries of all kinds, so that some are replaced, removed, evicted, or larger than a segment.
    private static void change(HugeCache<Long, byte[]> cache, long keys, int seed) {
        var random = new Random(seed);
        for (int i = 0; i < keys; i++) {
            long key = random.nextLong(keys);
            switch (random.nextInt(10)) {
                case 0 -> cache.invalidate(key);
                case 1 -> cache.put(key, HugeCacheTest.value(key, random.nextInt(200) == 0 ? 100_000 : 700));
                default -> cache.put(key, HugeCacheTest.value(key, 300));
            }
        }
        // Else its thread may still evict.
        cache.cleanUp();
    }

    /// Checks that each value is of its key, and that the cache has as many as it says.
    private static void isConsistent(HugeCache<Long, byte[]> cache) {
        int[] count = new int[1];
        cache.asMap().forEach((key, value) -> {
            assertThat(value).isEqualTo(HugeCacheTest.value(key, value.length));
            assertThat(cache.getIfPresent(key)).isEqualTo(value);
            count[0]++;
        });
        assertThat(cache.estimatedSize()).isEqualTo(count[0]);
        assertThat(cache.usedBytes()).isLessThanOrEqualTo(cache.maximumBytes());
    }

    private static void clear(HugeCache<Long, byte[]> cache) {
        cache.invalidateAll();
        cache.cleanUp();
        assertThat(cache.estimatedSize()).isZero();
        // Nothing was lost: the manifest, the index, and what is appended to.
        assertThat(cache.usedBytes()).isLessThanOrEqualTo(cache.indexBytes() + 4 * 65536);
    }

    @Test
    void theNextProcessHasAllEntriesOfAClosedCache() {
        Path file = folder.resolve("cache");
        for (int round = 0; round < 5; round++) {
            long before;
            try (var cache = builder(file).build()) {
                assertThat(cache.restart().kind()).isEqualTo(round == 0 ? Restart.Kind.NEW : Restart.Kind.WARM);
                change(cache, 60_000, round);
                cache.put(-1L, HugeCacheTest.value(-1, round + 1));
                cache.cleanUp();
                isConsistent(cache);
                before = cache.estimatedSize();
            }
            try (var cache = builder(file).build()) {
                assertThat(cache.restart()).isEqualTo(new Restart(Restart.Kind.WARM, ""));
                assertThat(cache.estimatedSize()).isEqualTo(before).isGreaterThan(5000);
                assertThat(cache.getIfPresent(-1L)).hasSize(round + 1);
                isConsistent(cache);
            }
        }
        try (var cache = builder(file).build()) {
            clear(cache);
        }
    }

    @Test
    void entriesOfAnOpenCacheAreFoundWhenItsProcessIsGone() throws IOException {
        Path file = folder.resolve("cache");
        Path left = folder.resolve("left");
        try (var cache = builder(file).build()) {
            for (int round = 0; round < 3; round++) {
                change(cache, 60_000, round);
                // What a killed process leaves.
                Files.copy(file, left, StandardCopyOption.COPY_ATTRIBUTES, StandardCopyOption.REPLACE_EXISTING);
                try (var next = builder(left).build()) {
                    assertThat(next.restart().kind()).isEqualTo(Restart.Kind.RECOVERED);
                    assertThat(next.asMap().keySet()).isEqualTo(cache.asMap().keySet());
                    isConsistent(next);
                    change(next, 60_000, 99);
                    isConsistent(next);
                    clear(next);
                }
            }
        }
    }

    /// Words of the index are replaced at random: entries may be lost, but none is wrong.
    @Test
    void aDamagedIndexLosesEntriesAndReturnsNoWrongOnes() throws IOException {
        Path file = folder.resolve("cache");
        Path left = folder.resolve("left");
        var random = new Random(5);
        try (var cache = builder(file).build()) {
            change(cache, 60_000, 0);
            for (int round = 0; round < 12; round++) {
                Files.copy(file, left, StandardCopyOption.COPY_ATTRIBUTES, StandardCopyOption.REPLACE_EXISTING);
                damage(left, cache.store().segments, random, 1 << (round % 12));
                try (var next = builder(left).build()) {
                    assertThat(next.restart().kind()).isEqualTo(Restart.Kind.RECOVERED);
                    isConsistent(next);
                    change(next, 30_000, 7);
                    isConsistent(next);
                    clear(next);
                }
            }
        }
    }

    /// A bit is flipped in some entries, also in a chunk: none of them has a wrong value.
    @Test
    void damagedEntriesOfAKilledProcessAreLost() throws IOException {
        Path file = folder.resolve("cache");
        Path left = folder.resolve("left");
        var random = new Random(6);
        try (var cache = builder(file).build()) {
            change(cache, 60_000, 0);
            List<Long> keys = new ArrayList<>(keysOfSize(cache, 100_000).subList(0, 2));
            keys.addAll(keysOfSize(cache, 300).subList(0, 14));
            for (int damaged = 1; damaged <= 16; damaged *= 4) {
                Files.copy(file, left, StandardCopyOption.COPY_ATTRIBUTES, StandardCopyOption.REPLACE_EXISTING);
                for (long key : keys.subList(0, damaged)) {
                    flipBit(left, cache, key, random);
                }
                try (var next = builder(left).build()) {
                    assertThat(next.restart().kind()).isEqualTo(Restart.Kind.RECOVERED);
                    isConsistent(next);
                    for (long key : keys.subList(0, damaged)) {
                        assertThat(next.getIfPresent(key)).isNull();
                    }
                    // The others in their segments are intact.
                    assertThat(next.estimatedSize()).isEqualTo(cache.estimatedSize() - damaged);
                    clear(next);
                }
            }
        }
    }

    private static List<Long> keysOfSize(HugeCache<Long, byte[]> cache, int size) {
        return cache.asMap().entrySet().stream().filter(entry -> entry.getValue().length == size).map(Map.Entry::getKey).toList();
    }

    private static void flipBit(Path left, HugeCache<Long, byte[]> cache, long key, Random random) throws IOException {
        Store store = cache.store();
        byte[] bytes = new byte[Long.BYTES];
        Serializers.longs().write(key, MemorySegment.ofArray(bytes));
        long at = store.peek(bytes, store.hash(bytes), store::valueAddress);
        try (HugeFile open = HugeFile.open(left, "hugewise-cache 4")) {
            long offset = at - store.segments.base + random.nextInt(200);
            open.memory().set(JAVA_BYTE, offset, (byte) (open.memory().get(JAVA_BYTE, offset) ^ 1 << random.nextInt(8)));
        }
    }

    private static void damage(Path file, Segments segments, Random random, int words) throws IOException {
        try (HugeFile open = HugeFile.open(file, "hugewise-cache 4")) {
            MemorySegment memory = open.memory();
            for (Manifest.Use use : new Manifest.Use[] {Manifest.Use.TABLE, Manifest.Use.OVERFLOW}) {
                for (int segment : segments.withUse(use)) {
                    for (int i = 0; i < words; i++) {
                        long at = (long) segment * segments.size + 8L * random.nextInt(segments.size / 8);
                        long other = (long) segment * segments.size + 8L * random.nextInt(segments.size / 8);
                        long word = random.nextBoolean() ? random.nextLong() : memory.get(JAVA_LONG, other);
                        memory.set(JAVA_LONG, at, random.nextInt(4) == 0 ? 0 : word);
                    }
                }
            }
        }
    }

    @Test
    void timesUntilExpiryGoOn() {
        Path file = folder.resolve("cache");
        var now = new AtomicLong(Duration.ofDays(3).toNanos());
        try (var cache = builder(file).ticker(now::get).variableExpiry().build()) {
            cache.put(1L, new byte[1], Duration.ofSeconds(10));
            cache.put(2L, new byte[2], Duration.ofSeconds(30));
            cache.put(3L, new byte[3]);
        }
        now.addAndGet(Duration.ofSeconds(20).toNanos());
        try (var cache = builder(file).ticker(now::get).variableExpiry().build()) {
            assertThat(cache.restart().kind()).isEqualTo(Restart.Kind.WARM);
            assertThat(cache.getIfPresent(1L)).isNull();
            assertThat(cache.getIfPresent(2L)).hasSize(2);
            now.addAndGet(Duration.ofSeconds(10).toNanos());
            assertThat(cache.getIfPresent(2L)).isNull();
            assertThat(cache.getIfPresent(3L)).hasSize(3);
        }
        now.set(0);
        try (var cache = builder(file).ticker(now::get).variableExpiry().build()) {
            assertThat(cache.restart()).isEqualTo(new Restart(Restart.Kind.EMPTY, "the clock is behind its times"));
            assertThat(cache.estimatedSize()).isZero();
        }
    }

    @Test
    void aFileDoesNotKeepUnwrittenChanges() {
        Path file = folder.resolve("cache");
        assertThatThrownBy(() -> builder(file).writeBack(WriteBack.to(_ -> {})).build())
                .isInstanceOf(IllegalStateException.class)
                .hasMessageContaining("writeThrough");
        assertThat(file).doesNotExist();
    }

    @Test
    void aFileThatDoesNotMatchIsEmptied() throws IOException {
        Path file = folder.resolve("cache");
        isEmptied(file, builder(file).maximumBytes(2 * SIZE), "are expected");
        isEmptied(file, builder(file).variableExpiry(), "with expiry");
        isEmptied(file, HugeCache.builder(Serializers.longs(), Serializers.strings()).maximumBytes(SIZE).file(file), "values string");
        isEmptied(file, HugeCache.builder(Serializers.doubles(), Serializers.bytes()).maximumBytes(SIZE).file(file), "keys double");
        fill(file);
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
            channel.truncate(SIZE / 2);
        }
        isEmptied(file, builder(file), "it has no header");
        fill(file);
        write(file, 8 * 7, 1);
        isEmptied(file, builder(file), "its settings are damaged");
        fill(file);
        write(file, 0, 1);
        isEmptied(file, builder(file), "its first page is damaged");
        Files.delete(file);
        HugeFile.create(file, SIZE, "hugewise-cache 0").close();
        isEmptied(file, builder(file), "its format is 'hugewise-cache 0'");
    }

    @Test
    void aFileThatWasChangedWhileItWasClosedIsSearchedForIntactEntries() throws IOException {
        Path file = folder.resolve("cache");
        fill(file);
        long segment;
        try (var cache = builder(file).build()) {
            cache.put(-1L, HugeCacheTest.value(-1, 100));
            segment = cache.store().segments.withUse(Manifest.Use.TABLE)[0];
        }
        write(file, segment * 65536, -1);
        isSearched(file, "1 of its segments were changed");
        write(file, 4096 + 8 * 5, 1L << 56);
        isSearched(file, "the list of its segments was changed");
    }

    private static void isSearched(Path file, String reason) {
        try (var cache = builder(file).build()) {
            assertThat(cache.restart().kind()).isEqualTo(Restart.Kind.RECOVERED);
            assertThat(cache.restart().reason()).contains(reason);
            assertThat(cache.estimatedSize()).isGreaterThan(500);
            isConsistent(cache);
        }
    }

    private static void fill(Path file) throws IOException {
        Files.deleteIfExists(file);
        try (var cache = builder(file).build()) {
            change(cache, 1000, 1);
        }
    }

    private static void write(Path file, long at, long word) throws IOException {
        try (HugeFile open = HugeFile.open(file, "hugewise-cache 4")) {
            open.memory().set(JAVA_LONG, at, word);
        }
    }

    private static <V> void isEmptied(Path file, HugeCacheBuilder<?, V> builder, String reason) throws IOException {
        if (!Files.exists(file)) {
            fill(file);
        }
        try (var cache = builder.build()) {
            assertThat(cache.restart().kind()).isEqualTo(Restart.Kind.EMPTY);
            assertThat(cache.restart().reason()).contains(reason);
            assertThat(cache.estimatedSize()).isZero();
        }
        fill(file);
    }

    @Test
    void otherFilesAreLeftAsTheyAre() throws IOException {
        Path file = folder.resolve("other");
        Files.writeString(file, "not a cache ".repeat(1000));
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
        assertThatThrownBy(() -> builder(file).build()).isInstanceOf(UncheckedIOException.class).hasMessageContaining("is not a cache");
        assertThat(file).hasContent("not a cache ".repeat(1000));
        Path cache = folder.resolve("cache");
        try (var _ = builder(cache).build()) {
            assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(cache))).isEqualTo("rw-------");
            assertThatThrownBy(() -> builder(cache).build()).isInstanceOf(UncheckedIOException.class).hasMessageContaining("is open already");
        }
        Files.setPosixFilePermissions(cache, PosixFilePermissions.fromString("rw-r--r--"));
        assertThatThrownBy(() -> builder(cache).build()).isInstanceOf(UncheckedIOException.class).hasMessageContaining("mode 0600");
        assertThat(cache).exists();
        assertThatThrownBy(() -> HugeCache.builder(Serializers.longs(), new Plain()).file(cache)).hasMessageContaining("need a format");
    }

    /// A serializer without a format.
    private static final class Plain implements Serializer<long[]> {
        @Override
        public int size(long[] value) {
            return value.length * Long.BYTES;
        }

        @Override
        public void write(long[] value, MemorySegment to) {
            to.copyFrom(MemorySegment.ofArray(value));
        }

        @Override
        public long[] read(MemorySegment from) {
            return from.toArray(JAVA_LONG.withByteAlignment(1));
        }
    }

    // --- Killed processes --------------------------------------------------------------------------

    private static final int THREADS = 3;
    private static final int KEYS = 20_000;
    private static final int KILLS = Integer.getInteger("hugewise.kills", 2);
    /// Changes after which a thread of the writer says so.
    private static final int CHANGES = 5_000;

    /// Changes entries until it is killed. Each thread has keys of its own, and notes the number of its last change of
    /// each key in memory of a file, when the change has ended.
    static final class Writer {
        public static void main(String[] arguments) throws Exception {
            var cache = builder(Path.of(arguments[0])).build();
            HugeFile notes = HugeFile.open(Path.of(arguments[1]), "notes");
            for (int thread = 0; thread < THREADS; thread++) {
                int first = thread;
                Thread.ofPlatform().start(() -> change(cache, notes.memory(), first));
            }
            System.out.println("writing " + cache.restart().kind());
        }

        private static void change(HugeCache<Long, byte[]> cache, MemorySegment notes, int first) {
            var random = ThreadLocalRandom.current();
            for (int count = 1; ; count++) {
                if (count % CHANGES == 0) {
                    System.out.println(CHANGES + " changes");
                }
                int key = (int) Math.abs(random.nextGaussian() * KEYS / 8) * THREADS + first;
                if (key < KEYS) {
                    long number = notes.get(JAVA_LONG, 8L * key) + 1;
                    if (isRemoval(key, number)) {
                        cache.invalidate((long) key);
                    } else {
                        cache.put((long) key, numbered(key, number));
                    }
                    notes.set(JAVA_LONG, 8L * key, number);
                }
            }
        }
    }

    private static boolean isRemoval(long key, long number) {
        return (key + number) % 7 == 0;
    }

    /// Bytes that depend on the key and a number; some are larger than a segment.
    private static byte[] numbered(long key, long number) {
        var random = new Random(key * 1_000_003 + number);
        byte[] bytes = new byte[random.nextInt(500) == 0 ? 80_000 : 8 + random.nextInt(600)];
        random.nextBytes(bytes);
        MemorySegment.ofArray(bytes).set(JAVA_LONG.withByteAlignment(1), 0, number);
        return bytes;
    }

    @Test
    void theNextProcessHasNoWrongValueAfterAKill() throws Exception {
        Path file = folder.resolve("cache");
        Path noted = folder.resolve("notes");
        HugeFile.create(noted, 8L * KEYS, "notes").close();
        var random = new Random(1);
        long found = 0;
        for (int round = 0; round < KILLS; round++) {
            String path = System.getProperty("jdk.module.path", "") + File.pathSeparator + System.getProperty("java.class.path");
            Process writer = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                    "--enable-native-access=ALL-UNNAMED", "-cp", path, Writer.class.getName(), file.toString(), noted.toString())
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            try (BufferedReader output = writer.inputReader()) {
                assertThat(output.readLine()).isEqualTo("writing " + (round == 0 ? Restart.Kind.NEW : Restart.Kind.WARM));
                for (int said = random.nextInt(1, 10); said > 0; said--) {
                    assertThat(output.readLine()).isEqualTo(CHANGES + " changes");
                }
            } finally {
                writer.destroyForcibly().waitFor();
            }
            try (var cache = builder(file).build(); HugeFile notes = HugeFile.open(noted, "notes")) {
                assertThat(cache.restart().kind()).isEqualTo(Restart.Kind.RECOVERED);
                for (long key = 0; key < KEYS; key++) {
                    byte[] value = cache.getIfPresent(key);
                    long last = notes.memory().get(JAVA_LONG, 8 * key);
                    if (value != null) {
                        long number = MemorySegment.ofArray(value).get(JAVA_LONG.withByteAlignment(1), 0);
                        assertThat(value).isEqualTo(numbered(key, number));
                        // Either the last change that has ended, or the one that had not.
                        assertThat(number).as("key %d", key).isBetween(last, last + 1);
                        assertThat(isRemoval(key, number)).isFalse();
                        notes.memory().set(JAVA_LONG, 8 * key, number);
                        found++;
                    }
                }
                assertThat(cache.usedBytes()).isLessThanOrEqualTo(cache.maximumBytes());
            }
        }
        assertThat(found).isGreaterThan(1000);
    }
}
