package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/// What a process loses that is killed. Times are those of the process itself, so the checks hold on a busy machine.
class KilledWriterTest {
    private static final int RECORD = 4 * Long.BYTES;
    private static final int KILLS = Integer.getInteger("hugewise.kills", 1);

    @TempDir
    private Path folder;

    @Test
    void writeBackLosesChangesOfTheWindowAtMost() throws Exception {
        for (int kill = 0; kill < KILLS; kill++) {
            long lost = lost("back", TimeUnit.MILLISECONDS.toNanos(KilledWriter.WINDOW_MILLIS));
            // Otherwise the test would not see a loss at all.
            assertThat(lost).isPositive();
        }
    }

    @Test
    void writeThroughLosesNothing() throws Exception {
        for (int kill = 0; kill < KILLS; kill++) {
            assertThat(lost("through", 0)).isZero();
        }
    }

    /// Kills a process after a random number of changes.
    ///
    /// @return number of keys whose last acknowledged change is lost, all of which are of the window
    private long lost(String mode, long window) throws Exception {
        String path = System.getProperty("jdk.module.path", "") + File.pathSeparator + System.getProperty("java.class.path");
        Process process = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED", "-Xmx256m", "-cp", path, KilledWriter.class.getName(), folder.toString(), mode)
                .redirectErrorStream(true).redirectOutput(folder.resolve("output").toFile()).start();
        Path file = folder.resolve("acknowledged");
        long size = ThreadLocalRandom.current().nextLong(20_000, 300_000) * RECORD;
        while (!Files.exists(file) || Files.size(file) < size) {
            assertThat(process.isAlive()).as(() -> text(folder.resolve("output"))).isTrue();
            Thread.sleep(1);
        }
        process.destroyForcibly().waitFor();

        long[] stored = new long[KilledWriter.KEYS];
        ByteBuffer rows = ByteBuffer.wrap(Files.readAllBytes(folder.resolve("store")));
        while (rows.remaining() >= 2 * Long.BYTES) {
            stored[(int) rows.getLong()] = rows.getLong();
        }
        ByteBuffer acknowledged = ByteBuffer.wrap(Files.readAllBytes(file));
        acknowledged.limit(acknowledged.limit() / RECORD * RECORD);
        long last = acknowledged.getLong(acknowledged.limit() - 2 * Long.BYTES);
        boolean[] isLost = new boolean[KilledWriter.KEYS];
        while (acknowledged.hasRemaining()) {
            int key = (int) acknowledged.getLong();
            long version = acknowledged.getLong();
            acknowledged.getLong();
            long after = acknowledged.getLong();
            if (stored[key] < version) {
                isLost[key] = true;
                assertThat(last - after).as("version %d of key %d is lost, and older than the window", version, key).isLessThanOrEqualTo(window);
            }
        }
        Files.delete(file);
        Files.delete(folder.resolve("store"));
        long lost = 0;
        for (boolean is : isLost) {
            lost += is ? 1 : 0;
        }
        return lost;
    }

    private static String text(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException error) {
            return error.toString();
        }
    }
}
