package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.HugeMemoryException;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/// Files of caches that were damaged: whatever is in them, no process crashes or hangs, and no value is wrong.
class DamagedFilesTest {
    private static final int FILES_PER_PROCESS = Integer.getInteger("hugewise.damaged.each", 20);
    private static final int FILES = Integer.getInteger("hugewise.damaged", 20);
    /// Processes at the same time, if there are several.
    private static final int PROCESSES = 2;
    /// Limit for a file, which takes 0.1 to 2 s.
    private static final long SECONDS_PER_FILE = 120;
    private static final long KEYS = 2000;

    @RegisterExtension
    private final SharedMemoryFolder folder = new SharedMemoryFolder();

    /// A process that opens damaged copies of files, with the numbers from one to another.
    static final class Reader {
        private static volatile int begun;

        public static void main(String[] arguments) throws IOException {
            Path folder = Path.of(arguments[0]);
            Thread.ofPlatform().daemon().start(Reader::endIfHung);
            for (int number = Integer.parseInt(arguments[1]); number < Integer.parseInt(arguments[2]); number++) {
                begun = number;
                var random = new SplittableRandom(number);
                Damage damage = Damage.values()[number % Damage.values().length];
                boolean expires = random.nextBoolean();
                String name = (random.nextBoolean() ? "closed" : "killed") + (expires ? "-expiring" : "");
                System.out.println(number + " " + damage + " " + name);
                Path copy = folder.resolve("damaged-" + arguments[1]);
                Files.copy(folder.resolve(name), copy, StandardCopyOption.COPY_ATTRIBUTES, StandardCopyOption.REPLACE_EXISTING);
                damage.apply(copy, random);
                System.out.println(number + " " + check(copy, expires));
                Files.deleteIfExists(copy);
            }
        }

        /// Ends the process, and prints the stacks of its threads, when a file takes too long.
        @SuppressWarnings("BusyWait")
        private static void endIfHung() {
            int before = -1;
            while (before != begun) {
                before = begun;
                try {
                    Thread.sleep(Duration.ofSeconds(SECONDS_PER_FILE));
                } catch (InterruptedException _) {
                    return;
                }
            }
            System.out.println(before + " hangs");
            Thread.getAllStackTraces().forEach((thread, stack) -> System.out.println(thread + " " + List.of(stack)));
            Runtime.getRuntime().halt(3);
        }
    }

    private static HugeCache<String, byte[]> open(Path file, boolean expires) {
        var builder = HugeCache.builder(Serializers.strings(), Serializers.bytes()).maximumBytes(4 << 20).file(file);
        return (expires ? builder.expireAfterWrite(Duration.ofHours(1)) : builder).build();
    }

    private static final byte[][] VALUES = new byte[(int) (3 * KEYS)][];

    private static byte[] value(long key) {
        if (VALUES[(int) key] == null) {
            VALUES[(int) key] = newValue(key);
        }
        return VALUES[(int) key];
    }

    private static byte[] newValue(long key) {
        var random = new SplittableRandom(key);
        byte[] value = new byte[key % 20 == 0 ? 2000 + random.nextInt(20_000) : random.nextInt(700)];
        random.nextBytes(value);
        return value;
    }

    private static void put(HugeCache<String, byte[]> cache, long from, long to) {
        for (long key = from; key < to; key++) {
            cache.put("key" + key, value(key));
        }
    }

    /// Reads and changes a cache, closes it, and reads it again.
    ///
    /// @return how it was opened
    private static String check(Path file, boolean expires) {
        String kind;
        long entries;
        try (var cache = open(file, expires)) {
            kind = cache.restart().kind().toString();
            assertThat(cache.restart().kind()).isNotEqualTo(Restart.Kind.NEW);
            isRight(cache, KEYS);
            put(cache, KEYS, 3 * KEYS);
            assertThat(cache.stats().rejections()).isZero();
            for (long key = 0; key < KEYS; key += 3) {
                cache.invalidate("key" + key);
            }
            cache.cleanUp();
            entries = cache.estimatedSize();
            assertThat(entries).isPositive();
            assertThat(isRight(cache, 3 * KEYS)).isEqualTo(entries);
        } catch (UncheckedIOException | HugeMemoryException refused) {
            assertThat(refused).hasMessageContaining(file.toString());
            return "REFUSED";
        }
        try (var cache = open(file, expires)) {
            assertThat(cache.restart()).isEqualTo(new Restart(Restart.Kind.WARM, ""));
            assertThat(isRight(cache, 3 * KEYS)).isEqualTo(entries);
        }
        return kind;
    }

    /// Checks that each value is the one of its key.
    ///
    /// @return number of entries
    private static long isRight(HugeCache<String, byte[]> cache, long keys) {
        for (long key = 0; key < keys; key++) {
            isRight("key" + key, cache.getIfPresent("key" + key));
        }
        Set<String> found = new HashSet<>();
        cache.asMap().forEach((key, value) -> {
            isRight(key, value);
            if (!found.add(key)) {
                throw new AssertionError(key + " is there twice");
            }
        });
        return found.size();
    }

    private static void isRight(String key, byte @Nullable [] value) {
        if (value != null && !Arrays.equals(value, value(Long.parseLong(key.substring(3))))) {
            throw new AssertionError(key + " has a wrong value of " + value.length + " bytes");
        }
    }

    @Test
    void noProcessCrashesHangsOrReadsWrongValues() throws Exception {
        for (boolean expires : new boolean[] {false, true}) {
            String suffix = expires ? "-expiring" : "";
            Path file = folder.resolve("closed" + suffix);
            try (var cache = open(file, expires)) {
                put(cache, 0, KEYS);
                put(cache, 0, KEYS);
                cache.cleanUp();
                // What a killed process leaves.
                Files.copy(file, folder.resolve("killed" + suffix), StandardCopyOption.COPY_ATTRIBUTES);
            }
        }
        Map<Damage, Set<String>> kinds = new EnumMap<>(Damage.class);
        var counts = new TreeMap<String, Integer>();
        Queue<Reading> running = new ArrayDeque<>();
        for (int from = 0; from < FILES || !running.isEmpty(); from += FILES_PER_PROCESS) {
            if (from < FILES) {
                running.add(new Reading(folder.path, from));
            }
            if (running.size() == PROCESSES || from >= FILES) {
                List<String> lines = running.remove().lines();
                for (int i = 0; i < lines.size(); i += 2) {
                    String kind = lines.get(i + 1).split(" ")[1];
                    kinds.computeIfAbsent(Damage.valueOf(lines.get(i).split(" ")[1]), _ -> new TreeSet<>()).add(kind);
                    counts.merge(kind, 1, Integer::sum);
                }
            }
        }
        assertThat(kinds).hasSize(Math.min(FILES, Damage.values().length));
        assertThat(counts.values().stream().mapToInt(count -> count).sum()).isEqualTo(FILES);
        System.out.println("Damaged files: " + counts + " " + kinds);
    }

    /// A process that reads files from a number on.
    private static final class Reading {
        private final Process process;
        private final Path output;

        Reading(Path folder, int from) throws IOException {
            output = folder.resolve("output-" + from);
            String path = System.getProperty("jdk.module.path", "") + File.pathSeparator + System.getProperty("java.class.path");
            process = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "--enable-native-access=ALL-UNNAMED",
                    "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-CreateCoredumpOnCrash", "-XX:ErrorFile=/dev/null", "-cp", path,
                    Reader.class.getName(), folder.toString(), "" + from, "" + Math.min(FILES, from + FILES_PER_PROCESS))
                    .redirectErrorStream(true).redirectOutput(output.toFile()).start();
        }

        /// Waits for its end.
        ///
        /// @return two lines for each file
        List<String> lines() throws Exception {
            // Each file has its own limit.
            boolean isEnded = process.waitFor((FILES_PER_PROCESS + 1) * 2 * SECONDS_PER_FILE, TimeUnit.SECONDS);
            process.destroyForcibly();
            List<String> lines = Files.readAllLines(output);
            assertThat(isEnded && process.waitFor() == 0).as(() -> String.join("\n", lines)).isTrue();
            Files.delete(output);
            return lines;
        }
    }
}
