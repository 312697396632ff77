package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/// Threads that wait for room for their changes, because the store is slow.
@Timeout(value = 5, unit = TimeUnit.MINUTES, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class RoomTest {
    private static final int UNWRITTEN = 4;
    private static final int THREADS = 40;
    private static final List<String> WAITS_OF_THREADS = List.of("jdk.JavaMonitorWait", "jdk.ThreadPark");
    private static final String NAME = "waits for room";
    /// Waits of a thread, with those for locks: if each wakes whenever there is room for one, they are about 20.
    private static final int WAITS = 5;
    /// A key that the store may refuse.
    private static final long REFUSED = -1;

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void roomWakesAsManyThreadsAsItIsFor(boolean isRefusing, @TempDir Path folder) throws Exception {
        var refuses = new AtomicBoolean(isRefusing);
        var begun = new CountDownLatch(1);
        var writes = new Semaphore(0);
        var options = WriteBack.<Long, byte[]>to(changes -> {
            if (changes.getFirst().key() == REFUSED && refuses.get()) {
                throw new IOException("of a test");
            }
            begun.countDown();
            writes.acquire(changes.size());
        }).window(Duration.ofHours(1)).patience(Duration.ofHours(1)).maximumUnwritten(UNWRITTEN + (isRefusing ? 1 : 0))
                .batch(1).refused(1, (_, _, _) -> RefusedChange.Decision.KEEP);
        var ended = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        try (var cache = HugeCacheTest.small().writeBack(options).build(); Recording recording = new Recording()) {
            WAITS_OF_THREADS.forEach(event -> recording.enable(event).withoutThreshold().withoutStackTrace());
            recording.start();
            if (isRefusing) {
                cache.put(REFUSED, new byte[1]);
            }
            for (long key = 0; key < UNWRITTEN; key++) {
                cache.put(key, new byte[1]);
            }
            begun.await();
            for (long key = UNWRITTEN; key < UNWRITTEN + THREADS; key++) {
                long own = key;
                threads.add(Thread.ofPlatform().name(NAME).start(() -> {
                    cache.put(own, new byte[1]);
                    ended.incrementAndGet();
                }));
            }
            for (Thread thread : threads) {
                while (thread.getState() != Thread.State.TIMED_WAITING) {
                    Thread.sleep(1);
                }
            }
            // None looks from time to time.
            Thread.sleep(500);
            for (int count = 1; count <= THREADS; count++) {
                writes.release();
                while (ended.get() < count) {
                    Thread.sleep(1);
                }
            }
            writes.release(UNWRITTEN + 1);
            refuses.set(false);
            recording.stop();
            Path file = folder.resolve("waits.jfr");
            recording.dump(file);
            long waits = RecordingFile.readAllEvents(file).stream().filter(event -> NAME.equals(event.getThread().getJavaName())).count();
            assertThat(waits).isBetween((long) THREADS, (long) THREADS * WAITS);
        }
    }
}
