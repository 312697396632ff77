package io.hugewise.memory;

import java.util.Comparator;
import java.util.Objects;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/// The runs of units that memory is divided into. A free run joins its free neighbours; a request gets the
/// smallest run that holds it, and the lowest of those. All by one lock: batches come here, and large blocks.
final class Spans {
    /// Memory is divided into units of so many bytes; a block that is aligned to more is a large one.
    static final int UNIT_LOG2 = 12;

    static final int UNIT = 1 << UNIT_LOG2;

    /// The span of each unit of one that is cut, and of the first and last unit of others. Written under
    /// the lock; read by whoever has a block in it, or believes so.
    private final @Nullable Span[] byUnit;

    private final TreeSet<Span> free =
            new TreeSet<>(Comparator.comparingInt((Span span) -> span.units).thenComparingInt(span -> span.first));
    /// The address of the memory, in units.
    private final long base;

    private long heldUnits;
    private int highest;

    Spans(long base, int units) {
        this.base = base;
        byUnit = new Span[units];
        addFree(Span.free(0, units));
    }

    int units() {
        return byUnit.length;
    }

    /// The span that a unit belongs to, as far as that is noted.
    @Nullable Span at(long unit) {
        return byUnit[(int) unit];
    }

    /// The span of a block that somebody has.
    Span holding(long offset) {
        return Objects.requireNonNull(at(offset >>> UNIT_LOG2));
    }

    /// A run cut into blocks; none if there is no run so long.
    synchronized @Nullable Span cut(int units, int sizeClass, long blockSize) {
        Span run = takeRun(units, 1);
        if (run == null) {
            return null;
        }
        Span span = Span.cut(run.first, units, sizeClass, blockSize);
        for (int unit = span.first; unit < span.first + units; unit++) {
            byUnit[unit] = span;
        }
        return span;
    }

    /// A run that is one block, and whose address is a multiple of so many units; none if there is none.
    synchronized @Nullable Span large(int units, long alignment) {
        Span run = takeRun(units, alignment);
        if (run == null) {
            return null;
        }
        Span span = Span.large(run.first, units);
        note(span);
        return span;
    }

    private @Nullable Span takeRun(int units, long alignment) {
        for (Span run : free.tailSet(Span.free(0, units), true)) {
            long skipped = -(base + run.first) & alignment - 1;
            if (skipped <= run.units - units) {
                int first = run.first + (int) skipped;
                removeFree(run);
                addFree(Span.free(run.first, first - run.first));
                addFree(Span.free(first + units, run.first + run.units - first - units));
                heldUnits += units;
                highest = Math.max(highest, first + units);
                return Span.free(first, units);
            }
        }
        return null;
    }

    /// Takes back a run that no block of is in use.
    synchronized void give(Span span) {
        heldUnits -= span.units;
        for (int unit = span.first; unit < span.first + span.units; unit += span.sizeClass >= 0 ? 1 : span.units) {
            byUnit[unit] = null;
        }
        byUnit[span.first + span.units - 1] = null;
        int first = span.first;
        int end = first + span.units;
        Span before = first > 0 ? byUnit[first - 1] : null;
        if (before != null && before.sizeClass == Span.FREE) {
            removeFree(before);
            first = before.first;
        }
        Span after = end < byUnit.length ? byUnit[end] : null;
        if (after != null && after.sizeClass == Span.FREE) {
            removeFree(after);
            end = after.first + after.units;
        }
        addFree(Span.free(first, end - first));
    }

    private void addFree(Span run) {
        if (run.units > 0) {
            free.add(run);
            note(run);
        }
    }

    private void removeFree(Span run) {
        free.remove(run);
        byUnit[run.first] = null;
        byUnit[run.first + run.units - 1] = null;
    }

    private void note(Span span) {
        byUnit[span.first] = span;
        byUnit[span.first + span.units - 1] = span;
    }

    /// How much is in runs that are in use, in bytes.
    synchronized long held() {
        return heldUnits << UNIT_LOG2;
    }

    /// How much was in use at most, from the beginning of the memory on, in bytes: what lies beyond was
    /// never touched.
    synchronized long reached() {
        return (long) highest << UNIT_LOG2;
    }

    /// The longest run that is free, in bytes.
    synchronized long longestFree() {
        return free.isEmpty() ? 0 : (long) free.last().units << UNIT_LOG2;
    }
}
