package io.hugewise.cache;

import io.hugewise.cache.Manifest.Use;
import io.hugewise.cache.policy.FrequencySketch;
import io.hugewise.cache.policy.LinearHashing;
import java.util.Arrays;
import java.util.function.IntConsumer;

/// How often keys were requested, in segments of memory. Only the holder of the lock of evictions changes its size.
final class Sketch extends FrequencySketch {
    private static final int LINE = LINE_WORDS * Long.BYTES;
    /// A smaller sketch has room for so many times the entries.
    private static final double SPARE = 1.1;

    private final Segments segments;
    private final int linesPerSegment;
    /// Addresses of the segments.
    private volatile long[] memory;

    Sketch(Segments segments) {
        this.segments = segments;
        this.linesPerSegment = segments.size / LINE;
        this.memory = Arrays.stream(segments.withUse(Use.SKETCH)).mapToLong(segments::address).toArray();
    }

    /// Makes room for a number of entries, as far as segments are free, or less than there was. A new segment has the
    /// counters of the one whose keys it shares; one that goes leaves it the means of both.
    ///
    /// @param unused is called with the numbers of segments that only readers use who have begun before
    void expect(long entries, IntConsumer unused) {
        setPeriod(entries);
        while (memory.length > 1 && capacity(memory.length - 1) > SPARE * entries) {
            unused.accept(shrink());
        }
        while (capacity(memory.length) < entries && segments.free() > Segments.RESERVED + 1) {
            // Before the segment is taken, which would be lost if there were no memory on the heap.
            long[] grown = Arrays.copyOf(memory, memory.length + 1);
            int segment = segments.tryTake(Segments.RESERVED);
            if (segment < 0) {
                return;
            }
            grow(segment, grown);
        }
    }

    private void grow(int segment, long[] grown) {
        long[] before = memory;
        int last = before.length;
        grown[last] = segments.address(segment);
        segments.manifest.setUse(segment, Use.SKETCH, last);
        if (last == 0) {
            Memory.slice(grown[last], segments.size).fill((byte) 0);
        } else {
            Memory.copy(before[LinearHashing.origin(last)], grown[last], segments.size);
        }
        memory = grown;
    }

    /// @return the segment that the sketch had
    private int shrink() {
        long[] before = memory;
        int last = before.length - 1;
        long[] shrunk = Arrays.copyOf(before, last);
        long other = before[LinearHashing.origin(last)];
        for (long at = 0; at < segments.size; at += Long.BYTES) {
            Memory.setLong(other + at, halved(Memory.getLong(other + at)) + halved(Memory.getLong(before[last] + at)));
        }
        memory = shrunk;
        return segments.of(before[last]);
    }

    /// Entries for which a number of segments is enough.
    private long capacity(int count) {
        return (long) count * linesPerSegment * ENTRIES_PER_LINE;
    }

    long bytes() {
        return (long) memory.length * segments.size;
    }

    @Override
    protected long line(long hash) {
        long[] current = memory;
        if (current.length == 0) {
            return -1;
        }
        int line = number(hash, current.length * linesPerSegment);
        return current[line / linesPerSegment] + (long) line % linesPerSegment * LINE;
    }

    @Override
    protected long word(long line, int number) {
        return Memory.getLong(line + (long) number * Long.BYTES);
    }

    @Override
    protected void setWord(long line, int number, long value) {
        Memory.setLong(line + (long) number * Long.BYTES, value);
    }

    @Override
    protected void halve() {
        for (long address : memory) {
            for (long at = address; at < address + segments.size; at += Long.BYTES) {
                Memory.setLong(at, halved(Memory.getLong(at)));
            }
        }
    }
}
