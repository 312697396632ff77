package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.cache.Manifest.Use;
import io.hugewise.memory.SegmentPool;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ChunksTest {
    private static final int SEGMENT = 64 << 10;

    /// A thread can be stopped between the choice of a segment and the append to it, until the segment has another use.
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

    /// While a value is written, the trailer of its chunk may have the hash already, but any number of the part.
    @ParameterizedTest
    @ValueSource(ints = {-1_000_000_000, 0, 1_000_000_000})
    void aChunkThatIsBeingWrittenStaysWhereItIs(int anyPart) {
        byte[] key = new byte[Long.BYTES];
        Serializers.longs().write(7L, MemorySegment.ofArray(key));
        try (var cache = HugeCacheTest.small().build()) {
            // Its last segment has free chunks.
            byte[] value = HugeCacheTest.value(7, 5 * SEGMENT / 2);
            cache.put(7L, value);
            Store store = cache.store();
            long hash = store.hash(key);
            int chunk = store.peek(key, hash, entry -> store.entries.part(entry, 1));
            long part = Chunks.address(store.segments, chunk) + Chunks.size(store.segments.size) - Long.BYTES;
            assertThat(Memory.getInt(part)).isOne();
            store.evictor.lock.lock();
            try {
                Memory.setInt(part, anyPart);
                assertThat(store.live.moveChunk(chunk)).isFalse();
                Memory.setInt(part, 1);
                assertThat(store.live.moveChunk(chunk)).isTrue();
            } finally {
                store.evictor.lock.unlock();
            }
            assertThat(cache.getIfPresent(7L)).isEqualTo(value);
        }
    }
}
