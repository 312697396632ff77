package io.hugewise.memory;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;

/// The units of 4 KiB that memory consists of, in chunks of 64, each with one word of bits: taken or free.
///
/// Runs of up to 32 units lie within a chunk and are taken by one atomic operation. Unit 0 is at an address that is
/// a multiple of a huge page, so memory that begins or ends within one has units that are always taken.
final class Units {
    static final int UNIT_LOG2 = 12;
    /// Size of a unit in bytes.
    static final int UNIT = 1 << UNIT_LOG2;

    /// Units of 1 TiB: the rest of larger memory is not used.
    private static final int MOST_UNITS = 1 << 28;

    /// Units of the longest run.
    static final int LONGEST_RUN = 32;

    static final int CHUNK_LOG2 = 6;
    /// Units of a chunk.
    static final int CHUNK = 1 << CHUNK_LOG2;
    private static final long ALL = -1;
    private static final int HUGE_LOG2 = 21;
    private static final int CHUNKS_OF_HUGE = 1 << (HUGE_LOG2 - UNIT_LOG2 - CHUNK_LOG2);
    /// Huge pages that are compared for a run.
    private static final int COMPARED = 32;
    /// Taken units with which a huge page is used without a comparison with others: 7/8.
    private static final int FULL_ENOUGH = CHUNK * CHUNKS_OF_HUGE * 7 / 8;

    /// Offset of the memory from unit 0, in bytes.
    final long skew;

    private final long firstAddressUnit;
    private final int end;
    private final long[] used;
    /// A bit for each chunk that may have a free unit.
    private final long[] candidates;
    private final int[] info;
    private final TouchedUnits touched;
    private final Scarcity scarcity = new Scarcity();
    /// The end of the highest unit that was ever taken.
    private final AtomicInteger reached;

    /// @param address multiple of a unit
    /// @param isFresh whether no unit was written yet
    Units(long address, long bytes, boolean isFresh) {
        long origin = address & -(1L << HUGE_LOG2);
        this.skew = address - origin;
        this.firstAddressUnit = origin >>> UNIT_LOG2;
        int first = (int) (skew >>> UNIT_LOG2);
        this.end = (int) Math.min((skew + bytes) >>> UNIT_LOG2, MOST_UNITS);
        this.used = new long[(end + CHUNK - 1) >>> CHUNK_LOG2];
        this.candidates = new long[(used.length + 63) >>> 6];
        this.info = new int[used.length << CHUNK_LOG2];
        this.touched = new TouchedUnits(used.length, isFresh);
        Arrays.fill(candidates, ALL);
        remove(0, first);
        remove(end, info.length);
        this.reached = new AtomicInteger(first);
    }

    /// Units that are not of the memory: taken for ever, and never touched.
    private void remove(int from, int to) {
        for (int unit = from; unit < to; unit++) {
            used[unit >>> CHUNK_LOG2] |= 1L << unit;
            touched.untouch(unit >>> CHUNK_LOG2, 1L << unit);
        }
    }

    int count() {
        return info.length;
    }

    /// What lies in each unit, to be read only.
    int[] infos() {
        return info;
    }

    int info(int unit) {
        return Atomics.get(info, unit);
    }

    void setInfo(int unit, int value) {
        Atomics.put(info, unit, value);
    }

    /// Sets that of a unit that only the calling thread uses.
    void setOwnInfo(int unit, int value) {
        Atomics.putRelease(info, unit, value);
    }

    boolean changeInfo(int unit, int from, int to) {
        return Atomics.change(info, unit, from, to);
    }

    Scarcity scarcity() {
        return scarcity;
    }

    // Runs

    /// Takes a run; returns its first unit, -1 if there is none. `near` is a unit of the chunk that is tried first.
    int takeRun(int units, int near) {
        int first = takeIn(near >>> CHUNK_LOG2, units);
        if (first < 0) {
            first = takeInHugePage(near >>> CHUNK_LOG2, units);
        }
        while (first < 0) {
            int chunk = choose(units);
            if (chunk < 0) {
                return -1;
            }
            first = takeIn(chunk, units);
        }
        reach(first + units);
        return first;
    }

    private int takeInHugePage(int chunk, int units) {
        int start = chunk & -CHUNKS_OF_HUGE;
        for (int i = start; i < Math.min(used.length, start + CHUNKS_OF_HUGE); i++) {
            int first = takeIn(i, units);
            if (first >= 0) {
                return first;
            }
        }
        return -1;
    }

    /// Without a lock that a virtual thread could wait for: the caller may hold a [SpinLock].
    private void reach(int unit) {
        if (unit > reached.get()) {
            reached.accumulateAndGet(unit, Math::max);
        }
    }

    private int takeIn(int chunk, int units) {
        while (true) {
            long now = Atomics.get(used, chunk);
            long starts = starts(~now, units);
            if (starts == 0) {
                return -1;
            }
            int at = Long.numberOfTrailingZeros(starts);
            if (Atomics.change(used, chunk, now, now | mask(units) << at)) {
                return (chunk << CHUNK_LOG2) + at;
            }
        }
    }

    /// The bits at which `units` adjacent bits are set.
    private static long starts(long free, int units) {
        for (int n = 1; n < units; ) {
            int step = Math.min(n, units - n);
            free &= free >>> step;
            n += step;
        }
        return free;
    }

    private static long mask(int units) {
        return ALL >>> (CHUNK - units);
    }

    /// A chunk with a free run: in the fullest of the lowest huge pages that have one, so that other huge pages
    /// become empty. -1 if there is none.
    private int choose(int units) {
        int best = -1;
        int most = -1;
        int compared = 0;
        for (int chunk = nextCandidate(0); chunk >= 0 && compared < COMPARED && most < FULL_ENOUGH; ) {
            int page = chunk / CHUNKS_OF_HUGE;
            int fullest = -1;
            int mostOfChunk = -1;
            int mostOfPage = 0;
            for (int i = page * CHUNKS_OF_HUGE; i < Math.min(used.length, (page + 1) * CHUNKS_OF_HUGE); i++) {
                long now = Atomics.get(used, i);
                int taken = Long.bitCount(now);
                mostOfPage += taken;
                if (taken == CHUNK) {
                    dropCandidate(i);
                } else if (taken > mostOfChunk && starts(~now, units) != 0) {
                    mostOfChunk = taken;
                    fullest = i;
                }
            }
            if (fullest >= 0) {
                compared++;
                if (mostOfPage > most) {
                    most = mostOfPage;
                    best = fullest;
                }
            }
            chunk = nextCandidate((page + 1) * CHUNKS_OF_HUGE);
        }
        return best;
    }

    private int nextCandidate(int from) {
        for (int word = from >>> 6, at = from & 63; word < candidates.length; word++, at = 0) {
            long left = Atomics.get(candidates, word) >>> at << at;
            if (left != 0) {
                int chunk = (word << 6) + Long.numberOfTrailingZeros(left);
                return chunk < used.length ? chunk : -1;
            }
        }
        return -1;
    }

    private void dropCandidate(int chunk) {
        Atomics.clear(candidates, chunk >>> 6, 1L << chunk);
        // A unit may have become free before the bit was cleared.
        if (Atomics.get(used, chunk) != ALL) {
            Atomics.set(candidates, chunk >>> 6, 1L << chunk);
        }
    }

    /// Frees units of one chunk.
    void give(int first, int units) {
        release(first >>> CHUNK_LOG2, mask(units) << first);
    }

    private void release(int chunk, long bits) {
        Atomics.clear(used, chunk, bits);
        Atomics.set(candidates, chunk >>> 6, 1L << chunk);
        scarcity.noteRelease();
    }

    // Runs of any length

    /// Takes the lowest free run of any length; returns its first unit, -1 if there is none.
    ///
    /// @param alignment of its address in units, a power of two
    synchronized int takeLong(int units, long alignment) {
        int from = 0;
        while ((from = next(from, false)) >= 0) {
            long start = (firstAddressUnit + from + alignment - 1 & -alignment) - firstAddressUnit;
            if (start > end - units) {
                return -1;
            }
            int after = next((int) start, true);
            int stop = after < 0 ? info.length : after;
            if (stop - start >= units && claim((int) start, units)) {
                reach((int) start + units);
                return (int) start;
            }
            from = Math.max(stop, (int) start + 1);
        }
        return -1;
    }

    /// The next unit from `from` on that is taken, or free; -1 if there is none.
    private int next(int from, boolean taken) {
        for (int chunk = from >>> CHUNK_LOG2, at = from & CHUNK - 1; chunk < used.length; chunk++, at = 0) {
            long now = Atomics.get(used, chunk);
            long left = (taken ? now : ~now) >>> at << at;
            if (left != 0) {
                return (chunk << CHUNK_LOG2) + Long.numberOfTrailingZeros(left);
            }
        }
        return -1;
    }

    /// Takes these units; none of them if another thread has taken one.
    private boolean claim(int first, int units) {
        for (int unit = first; unit < first + units; ) {
            int chunk = unit >>> CHUNK_LOG2;
            int of = Math.min(first + units - unit, CHUNK - (unit & CHUNK - 1));
            long bits = mask(of) << unit;
            while (true) {
                long now = Atomics.get(used, chunk);
                if ((now & bits) != 0) {
                    giveLong(first, unit - first);
                    return false;
                }
                if (Atomics.change(used, chunk, now, now | bits)) {
                    break;
                }
            }
            unit += of;
        }
        return true;
    }

    // Touched units

    /// Marks units of one chunk, taken by the caller, as touched.
    void touch(int first, int units) {
        touched.touch(first >>> CHUNK_LOG2, mask(units) << first);
    }

    boolean isTouched(int unit) {
        return (touched.of(unit >>> CHUNK_LOG2) >>> unit & 1) != 0;
    }

    void untouch(int unit) {
        touched.untouch(unit >>> CHUNK_LOG2, 1L << unit);
    }

    /// Marks units of any number of chunks; calls `before` for those that were touched already.
    void touchLong(int first, int units, Run before) {
        for (int unit = first; unit < first + units; ) {
            int chunk = unit >>> CHUNK_LOG2;
            int of = Math.min(first + units - unit, CHUNK - (unit & CHUNK - 1));
            forRuns(chunk, touched.of(chunk) & mask(of) << unit, before);
            touch(unit, of);
            unit += of;
        }
    }

    /// What is done with adjacent units; whether it was done.
    interface Run {
        boolean at(int first, int units);
    }

    /// Calls `run` for each run of set bits; returns the bits of those that were done.
    private static long forRuns(int chunk, long bits, Run run) {
        long done = 0;
        for (long left = bits; left != 0; ) {
            int from = Long.numberOfTrailingZeros(left);
            int length = Long.numberOfTrailingZeros(~(left >>> from));
            long of = mask(length) << from;
            done |= run.at((chunk << CHUNK_LOG2) + from, length) ? of : 0;
            left &= ~of;
        }
        return done;
    }

    /// Takes units of one chunk that are idle, given as bits; frees them again, untouched, after `run`.
    void untouch(int chunk, long wanted, Run run) {
        long now;
        long bits;
        do {
            now = Atomics.get(used, chunk);
            bits = wanted & ~now & touched.of(chunk);
        } while (bits != 0 && !Atomics.change(used, chunk, now, now | bits));
        if (bits != 0) {
            try {
                touched.untouch(chunk, forRuns(chunk, bits, run));
            } finally {
                release(chunk, bits);
            }
        }
    }

    /// The same with whole chunks, unless a unit of them is taken.
    void untouch(int chunk, int chunks, Run run) {
        int first = chunk << CHUNK_LOG2;
        int count = chunks << CHUNK_LOG2;
        if (claim(first, count)) {
            try {
                boolean done = run.at(first, count);
                for (int i = chunk; done && i < chunk + chunks; i++) {
                    touched.untouch(i, ALL);
                }
            } finally {
                giveLong(first, count);
            }
        }
    }

    int chunks() {
        return used.length;
    }

    /// Units of a chunk that are free and touched.
    long idle(int chunk) {
        return ~Atomics.get(used, chunk) & touched.of(chunk);
    }

    /// Whether no unit is taken in the chunk that begins with a unit.
    boolean isFree(int first) {
        return (first & CHUNK - 1) == 0 && Atomics.get(used, first >>> CHUNK_LOG2) == 0;
    }

    /// Frees units of any number of chunks.
    void giveLong(int first, int units) {
        for (int unit = first; unit < first + units; ) {
            int of = Math.min(first + units - unit, CHUNK - (unit & CHUNK - 1));
            release(unit >>> CHUNK_LOG2, mask(of) << unit);
            unit += of;
        }
    }

    // Figures

    /// Bytes of the taken units.
    long held() {
        long taken = 0;
        for (int chunk = 0; chunk < used.length; chunk++) {
            taken += Long.bitCount(Atomics.get(used, chunk));
        }
        return (taken - (skew >>> UNIT_LOG2) - (info.length - end)) << UNIT_LOG2;
    }

    /// Bytes of pages with a touched unit.
    long touched(long pageSize) {
        return touched.bytes(pageSize);
    }

    /// Bytes from the start of the memory to the end of the highest unit that was ever taken.
    long reached() {
        return ((long) reached.get() << UNIT_LOG2) - skew;
    }

    /// Bytes of the longest free run.
    long longestFree() {
        long longest = 0;
        for (int from = next(0, false); from >= 0; ) {
            int after = next(from, true);
            int stop = after < 0 ? info.length : after;
            longest = Math.max(longest, stop - from);
            from = next(stop, false);
        }
        return longest << UNIT_LOG2;
    }
}
