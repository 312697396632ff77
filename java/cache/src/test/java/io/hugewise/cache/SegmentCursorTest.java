package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.cache.Manifest.Use;
import io.hugewise.memory.SegmentPool;
import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SegmentCursorTest {
    private static final int SEGMENT = 64 << 10;

    private final SplittableRandom random = new SplittableRandom(1);

    /// Values of up to so many bytes: many in each piece, one in several, a single one.
    @ParameterizedTest
    @ValueSource(ints = {1, 100, 3_000, 20_000, 60_000})
    void everyEntryIsFoundOnce(int largest) {
        try (var arena = Arena.ofConfined()) {
            var pool = SegmentPool.of(arena.allocate(SEGMENT, Long.BYTES), SEGMENT, Segments.FIELDS);
            var segments = new Segments(pool, Manifest.onHeap(1));
            var layout = new Entries(false, false, 64 * SEGMENT);
            var log = new Log(segments, Use.WINDOW);
            int segment = segments.tryTake(0);
            for (int use = 0; use < 3; use++) {
                log.open(segment);
                List<Long> written = fill(log, layout, largest);
                log.close();
                assertThat(found(segments, layout, segment)).containsExactlyInAnyOrderElementsOf(written);
                // As after a restart.
                segments.starts.clear(segment);
                assertThat(found(segments, layout, segment)).containsExactlyElementsOf(written);
            }
            log.open(segment);
            log.close();
            assertThat(found(segments, layout, segment)).isEmpty();
        }
    }

    private List<Long> fill(Log log, Entries layout, int largest) {
        List<Long> written = new ArrayList<>();
        while (true) {
            int size = random.nextInt(largest + 1);
            long entry = log.tryAppend(layout.size(8, size), 0);
            if (entry == 0) {
                return written;
            }
            layout.writeHeader(entry, 8, size, false);
            log.written(entry);
            written.add(entry);
        }
    }

    private static List<Long> found(Segments segments, Entries layout, int segment) {
        List<Long> found = new ArrayList<>();
        var cursor = new SegmentCursor(segments, layout, segment);
        long[] some = new long[Starts.PIECES];
        for (int count = cursor.next(some); count > 0; count = cursor.next(some)) {
            for (int i = 0; i < count; i++) {
                found.add(some[i]);
            }
        }
        return found;
    }
}
