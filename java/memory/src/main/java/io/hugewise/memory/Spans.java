package io.hugewise.memory;

import java.util.Comparator;
import java.util.Objects;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/// The runs of units that memory is divided into. Adjacent free runs are merged; a request gets the smallest
/// sufficient run, and of several the lowest. One lock guards all: only batches and large blocks get here.
final class Spans {
    static final int UNIT_LOG2 = 12;

    /// Size of a unit in bytes; a block with a larger alignment is a large block.
    static final int UNIT = 1 << UNIT_LOG2;

    /// The span of each unit of a divided span, and of the first and last unit of other spans. Written under
    /// the lock, read without it.
    private final @Nullable Span[] byUnit;

    private final TreeSet<Span> free =
            new TreeSet<>(Comparator.comparingInt((Span span) -> span.units).thenComparingInt(span -> span.first));
    /// Address of the memory in units.
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

    /// The span recorded for a unit; null if none is.
    @Nullable Span at(long unit) {
        return byUnit[(int) unit];
    }

    /// The span of an allocated block.
    Span holding(long offset) {
        return Objects.requireNonNull(at(offset >>> UNIT_LOG2));
    }

    /// A run divided into blocks; null if there is no free run of this length.
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

    /// A run that is one block, aligned to `alignment` units; null if there is none.
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

    /// Frees a run without allocated blocks.
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

    /// Bytes in runs that are in use.
    synchronized long held() {
        return heldUnits << UNIT_LOG2;
    }

    /// Highest end of any run so far, in bytes: memory beyond was never touched.
    synchronized long reached() {
        return (long) highest << UNIT_LOG2;
    }

    /// Longest free run, in bytes.
    synchronized long longestFree() {
        return free.isEmpty() ? 0 : (long) free.last().units << UNIT_LOG2;
    }
}
