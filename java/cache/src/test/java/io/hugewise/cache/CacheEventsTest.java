package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Backing;
import java.nio.file.Path;
import java.util.List;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class CacheEventsTest {
    @Test
    void openCachesAreRecorded(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("test.jfr");
        // Opened before the recording.
        try (var cache = HugeCacheTest.small().memory(options -> options.only(Backing.base()).named("recorded")).removalListener((_, _, _) -> {
            throw new IllegalStateException("of a test");
        }).build();
                Recording recording = new Recording()) {
            HugeCacheTest.small().memory(options -> options.only(Backing.base()).named("recorded, closed")).build().close();
            cache.put(1L, new byte[100]);
            cache.getIfPresent(1L);
            cache.get(2L, _ -> new byte[300]);
            cache.put(3L, new byte[1]);
            cache.invalidate(3L);
            assertThat(cache.stats().health()).isEqualTo(cache.health()).extracting(CacheHealth::listenerFailures).isEqualTo(1L);
            // One event when the recording ends.
            recording.enable("io.hugewise.Cache").with("period", "endChunk");
            recording.start();
            recording.stop();
            recording.dump(file);
            List<RecordedEvent> events = RecordingFile.readAllEvents(file).stream()
                    .filter(event -> event.getEventType().getName().equals("io.hugewise.Cache"))
                    .filter(event -> event.getString("arena").startsWith("recorded"))
                    .toList();
            assertThat(events).hasSize(1);
            RecordedEvent event = events.getFirst();
            assertThat(event.getString("arena")).isEqualTo("recorded");
            assertThat(event.getLong("entries")).isEqualTo(2);
            assertThat(event.getLong("limit")).isEqualTo(cache.maximumBytes());
            // The cache frees and takes memory by itself.
            assertThat(event.getLong("used")).isBetween(1L, cache.maximumBytes());
            assertThat(event.getDouble("hitRatio")).isEqualTo(0.5);
            assertThat(event.getDouble("byteHitRatio")).isEqualTo(0.25);
            assertThat(event.getLong("listenerFailures")).isEqualTo(1);
            for (String count : new String[] {"backgroundFailures", "writerFailures", "refreshFailures", "refusedChanges", "keptChanges", "unwrittenChanges"}) {
                assertThat(event.getLong(count)).as(count).isZero();
            }
        }
    }
}
