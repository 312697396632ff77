package io.hugewise.cache;

import io.hugewise.cache.Manifest.Use;
import java.util.Arrays;
import java.util.function.IntConsumer;
import java.util.stream.IntStream;

/// How often keys were requested: a count-min sketch (Cormode, Muthukrishnan, 2005) of 4-bit counters, which are halved
/// from time to time. The counters of a key are in one cache line, as in Caffeine's. Only the holder of the lock of
/// evictions changes its size; increments that happen at the same time may be lost.
final class Sketch {
    private static final int LINE = 64;
    private static final int ROWS = 4;
    private static final int MOST = 15;
    private static final long LOW_BITS = 0x7777_7777_7777_7777L;
    /// Entries for each line of 128 counters.
    private static final int ENTRIES_PER_LINE = 16;
    private static final int PERIOD = 15;
    /// A smaller sketch has room for so many times the entries.
    private static final double SPARE = 1.1;

    private final Segments segments;
    private final int linesPerSegment;
    /// Addresses of the segments, a power of two.
    private volatile long[] memory;
    private volatile long period = Long.MAX_VALUE;
    private long increments;

    Sketch(Segments segments) {
        this.segments = segments;
        this.linesPerSegment = segments.size / LINE;
        this.memory = restored();
    }

    /// The segments that the manifest has, unless the last process has ended while the sketch grew.
    private long[] restored() {
        int[] before = segments.withUse(Use.SKETCH);
        int count = Integer.highestOneBit(before.length);
        for (int i = count; i < before.length; i++) {
            segments.release(before[i]);
        }
        return IntStream.range(0, count).mapToLong(i -> segments.address(before[i])).toArray();
    }

    /// Makes room for a number of entries, as far as segments are free, or less than there was. The grown sketch has the
    /// counters of the old one in both halves; a smaller one has half of their sums.
    ///
    /// @param unused is called with the numbers of segments that only readers use who have begun before
    void expect(long entries, IntConsumer unused) {
        period = entries * PERIOD;
        while (memory.length > 1 && capacity(memory.length / 2) > SPARE * entries) {
            halve(unused);
        }
        long[] grown = memory;
        while (capacity(grown.length) < entries) {
            long[] doubled = new long[Math.max(1, 2 * grown.length)];
            if (segments.free() < Segments.RESERVED + doubled.length - grown.length + 1) {
                break;
            }
            System.arraycopy(grown, 0, doubled, 0, grown.length);
            for (int i = grown.length; i < doubled.length; i++) {
                int segment = segments.tryTake(Segments.RESERVED);
                if (segment < 0) {
                    // Writers were faster: give back those taken so far.
                    for (int taken = grown.length; taken < i; taken++) {
                        segments.release(segments.of(doubled[taken]));
                    }
                    memory = grown;
                    return;
                }
                segments.manifest.setUse(segment, Use.SKETCH, i);
                doubled[i] = segments.address(segment);
                if (grown.length == 0) {
                    Memory.slice(doubled[i], segments.size).fill((byte) 0);
                } else {
                    Memory.copy(grown[i - grown.length], doubled[i], segments.size);
                }
            }
            grown = doubled;
            memory = grown;
        }
    }

    /// Entries for which a number of segments is enough.
    private long capacity(int count) {
        return (long) count * linesPerSegment * ENTRIES_PER_LINE;
    }

    private void halve(IntConsumer unused) {
        long[] before = memory;
        int half = before.length / 2;
        for (int i = 0; i < half; i++) {
            for (long at = 0; at < segments.size; at += Long.BYTES) {
                long sum = (Memory.getLong(before[i] + at) >>> 1 & LOW_BITS) + (Memory.getLong(before[i + half] + at) >>> 1 & LOW_BITS);
                Memory.setLong(before[i] + at, sum);
            }
        }
        increments /= 2;
        memory = Arrays.copyOf(before, half);
        for (int i = half; i < before.length; i++) {
            unused.accept(segments.of(before[i]));
        }
    }

    long bytes() {
        return (long) memory.length * segments.size;
    }

    /// How often a key was requested, from 0 to 15.
    int frequency(long hash) {
        long[] current = memory;
        if (current.length == 0) {
            return 0;
        }
        long line = line(current, hash);
        int least = MOST;
        for (int row = 0; row < ROWS; row++) {
            least = Math.min(least, (int) (Memory.getLong(line + word(hash, row)) >>> shift(hash, row)) & MOST);
        }
        return least;
    }

    void increment(long hash) {
        long[] current = memory;
        if (current.length == 0) {
            return;
        }
        long line = line(current, hash);
        int before = frequency(hash);
        for (int row = 0; row < ROWS && before < MOST; row++) {
            long at = line + word(hash, row);
            long counters = Memory.getLong(at);
            int shift = shift(hash, row);
            if ((counters >>> shift & MOST) == before) {
                Memory.setLong(at, counters + (1L << shift));
            }
        }
        increments++;
    }

    /// Halves the counters if there were many increments.
    void age() {
        if (increments < period) {
            return;
        }
        for (long address : memory) {
            for (long at = address; at < address + segments.size; at += Long.BYTES) {
                Memory.setLong(at, Memory.getLong(at) >>> 1 & LOW_BITS);
            }
        }
        increments /= 2;
    }

    private long line(long[] current, long hash) {
        long line = (hash >>> 32) & ((long) current.length * linesPerSegment - 1);
        return current[(int) (line / linesPerSegment)] + line % linesPerSegment * LINE;
    }

    /// Offset of the word of a row in its line. A row has two of the eight words.
    private static int word(long hash, int row) {
        return (2 * row + (bits(hash, row) & 1)) * Long.BYTES;
    }

    private static int shift(long hash, int row) {
        return (bits(hash, row) >>> 1 & 15) * 4;
    }

    private static int bits(long hash, int row) {
        return (int) ((hash * 0x9E3779B97F4A7C15L) >>> (32 + 8 * row));
    }
}
