package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Events.ReserveEvent;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class EventsTest {
    @Test
    void flightRecorderHasAllEvents(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("test.jfr");
        try (Recording recording = new Recording()) {
            recording.start();
            var options = HugeOptions.reserve(4 << 20).prefer(Backing.hugetlb(1L << 40), Backing.base()).pretouch().named("recorded");
            HugeArena.ofShared(options).close();
            recording.stop();
            recording.dump(file);
        }
        List<RecordedEvent> events = RecordingFile.readAllEvents(file).stream()
                .filter(event -> event.getEventType().getName().startsWith("io.hugewise."))
                .filter(event -> event.getString("arena").equals("recorded"))
                .sorted(Comparator.comparing(RecordedEvent::getEndTime))
                .toList();
        assertThat(events)
                .extracting(event -> event.getEventType().getName())
                .containsExactly("io.hugewise.Reserve", "io.hugewise.Pretouch", "io.hugewise.Fallback", "io.hugewise.Release");
        assertThat(events).allMatch(event -> event.getLong("size") == 4 << 20);
        assertThat(events.get(1).getInt("threads")).isPositive();
        assertThat(events.get(2).getString("cause")).contains("no pool of 1TiB");
    }

    @Test
    void withoutARecordingNoClassOfAnEventIsLoaded() {
        Machine.Ran ran = Machine.java("--enable-native-access=ALL-UNNAMED", "-Xlog:class+load", Unrecorded.class.getName());
        assertThat(ran.status()).as(ran.output()).isZero();
        assertThat(ran.output()).contains(Events.class.getName()).doesNotContain("jdk.jfr.Event ", ReserveEvent.class.getName());
    }

    static final class Unrecorded {
        public static void main(String[] arguments) {
            HugeArena.ofShared(HugeOptions.reserve(1 << 20).prefer(Backing.hugetlb(1L << 40), Backing.base()).pretouch()).close();
        }
    }
}
