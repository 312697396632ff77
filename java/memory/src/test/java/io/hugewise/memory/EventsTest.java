package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Events.ReserveEvent;
import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.FutureTask;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class EventsTest {
    private static final String COVERAGE = "io.hugewise.Coverage";
    private static final int MIB = 1 << 20;

    @TempDir
    private Path folder;

    /// The events of arenas whose name begins with `recorded`.
    private List<RecordedEvent> recorded(Runnable program) throws Exception {
        Path file = folder.resolve("test.jfr");
        try (Recording recording = new Recording()) {
            // One event when the recording ends.
            recording.enable(COVERAGE).with("period", "endChunk");
            recording.start();
            program.run();
            recording.stop();
            recording.dump(file);
        }
        return RecordingFile.readAllEvents(file).stream()
                .filter(event -> event.getEventType().getName().startsWith("io.hugewise."))
                .filter(event -> event.getString("arena").startsWith("recorded"))
                .sorted(Comparator.comparing(RecordedEvent::getEndTime))
                .toList();
    }

    @Test
    void flightRecorderHasAllEvents() throws Exception {
        List<RecordedEvent> events = recorded(() -> {
            var options = HugeOptions.reserve(4 * MIB).prefer(Backing.hugetlb(1L << 40), Backing.base()).pretouch().named("recorded");
            HugeArena.ofShared(options).close();
        });
        assertThat(events)
                .extracting(event -> event.getEventType().getName())
                .containsExactly("io.hugewise.Reserve", "io.hugewise.Pretouch", "io.hugewise.Fallback", "io.hugewise.Release");
        assertThat(events).allMatch(event -> event.getLong("size") == 4 * MIB);
        assertThat(events.get(1).getInt("threads")).isPositive();
        assertThat(events.get(2).getString("cause")).contains("no pool of 1TiB");
    }

    @Test
    void theCoverageOfOpenArenasIsRecorded() throws Exception {
        var options = HugeOptions.reserve(4 * MIB).only(Backing.base()).pretouch();
        // Opened before the recording, and confined to another thread than the recording's.
        try (HugeArena confined = HugeArena.ofConfined(options.named("recorded"));
                HugeArena _ = HugeArena.open(
                        options.named("recorded, of the JVM"), Arena::ofShared, new Platform("Windows 11", "amd64"))) {
            confined.allocate(MIB);
            var events = new FutureTask<>(() -> recorded(() -> HugeArena.ofShared(options.named("recorded, and closed")).close()));
            Thread.ofPlatform().start(events);
            List<RecordedEvent> coverages = events.get().stream()
                    .filter(event -> event.getEventType().getName().equals(COVERAGE))
                    .sorted(Comparator.comparing(event -> event.getString("arena")))
                    .toList();
            assertThat(coverages).extracting(event -> event.getString("arena")).containsExactly("recorded", "recorded, of the JVM");
            RecordedEvent known = coverages.getFirst();
            assertThat(known.getLong("size")).isEqualTo(4 * MIB);
            assertThat(known.getLong("used")).isEqualTo(MIB);
            // Pages that the kernel is migrating are omitted.
            assertThat(known.getLong("residentBase")).isBetween(3L * MIB, 4L * MIB);
            assertThat(known.getLong("residentHuge")).isZero();
            assertThat(known.getDouble("hugeShare")).isZero();
            assertThat(known.getString("unknown")).isEmpty();
            assertThat(coverages.getLast().getLong("residentBase")).isEqualTo(-1);
            assertThat(coverages.getLast().getDouble("hugeShare")).isNaN();
            assertThat(coverages.getLast().getString("unknown")).contains("Windows 11 on amd64");
        }
    }

    @Test
    void withoutARecordingNoClassOfAnEventIsLoaded() {
        Machine.Ran ran = Machine.java("--enable-native-access=ALL-UNNAMED", "-Xlog:class+load", Unrecorded.class.getName());
        assertThat(ran.status()).as(ran.output()).isZero();
        assertThat(ran.output()).contains(Events.class.getName()).doesNotContain("jdk.jfr.Event ", ReserveEvent.class.getName());
    }

    static final class Unrecorded {
        public static void main(String[] arguments) {
            HugeArena.ofShared(HugeOptions.reserve(MIB).prefer(Backing.hugetlb(1L << 40), Backing.base()).pretouch()).close();
        }
    }
}
