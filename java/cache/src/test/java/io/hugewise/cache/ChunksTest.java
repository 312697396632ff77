package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.cache.Manifest.Use;
import io.hugewise.memory.SegmentPool;
import java.lang.foreign.Arena;
import org.junit.jupiter.api.Test;

/// A thread can be stopped between the choice of a segment and the append to it, until the segment has another use.
class ChunksTest {
    private static final int SEGMENT = 64 << 10;

    @Test
    void aSegmentThatWasCutIntoChunksGetsNoEntries() {
        try (var arena = Arena.ofConfined()) {
            var pool = SegmentPool.of(arena.allocate(SEGMENT, Long.BYTES), SEGMENT, Segments.FIELDS);
            var segments = new Segments(pool, Manifest.onHeap(1));
            var log = new Log(segments, Use.WINDOW);
            int segment = segments.tryTake(0);
            log.open(segment);
            assertThat(log.tryAppend(64, 0)).isNotZero();
            segments.release(segment);
            var chunks = new Chunks(segments);
            int chunk = chunks.tryTake(0);
            assertThat(chunk / Chunks.PER_SEGMENT).isEqualTo(segment);
            assertThat(log.tryAppend(64, 0)).as("in the memory of chunks").isZero();
            chunks.give(chunk);
            assertThat(log.tryAppend(64, 0)).as("in free memory").isZero();
        }
    }
}
