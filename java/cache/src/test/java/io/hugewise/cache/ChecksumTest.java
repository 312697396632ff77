package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.SegmentPool;
import java.lang.foreign.Arena;
import org.junit.jupiter.api.Test;

/// A damaged size is found, too: it changes which bytes the checksum is taken of.
class ChecksumTest {
    private static final int SEGMENT = 64 << 10;
    private static final int WIDE_KEY = 2000;
    private static final int VALUE = 1000;

    @Test
    void aDamagedSizeOfAWideEntryIsFound() {
        try (var arena = Arena.ofConfined()) {
            var pool = SegmentPool.of(arena.allocate(SEGMENT, Long.BYTES), SEGMENT, Segments.FIELDS);
            var segments = new Segments(pool, Manifest.onHeap(1));
            var layout = new Entries(true, true, SEGMENT);
            long entry = segments.address(0);
            layout.writeHeader(entry, WIDE_KEY, VALUE, false);
            // The same bytes everywhere: only their number differs.
            Memory.slice(layout.key(entry), SEGMENT / 2).fill((byte) 0);
            layout.setChecksum(entry, Checksum.of(entry, layout, segments));

            for (long word : new long[] {entry, layout.key(entry) - Integer.BYTES}) {
                int sizes = Memory.getInt(word);
                for (int bit = 0; bit < Integer.SIZE; bit++) {
                    Memory.setInt(word, sizes ^ 1 << bit);
                    assertThat(layout.checkedSize(entry, SEGMENT) == 0 || Checksum.of(entry, layout, segments) != layout.checksum(entry))
                            .as("bit %d", bit).isTrue();
                }
                Memory.setInt(word, sizes);
            }
            assertThat(Checksum.of(entry, layout, segments)).isEqualTo(layout.checksum(entry));
        }
    }
}
