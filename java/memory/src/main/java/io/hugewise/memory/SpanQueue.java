package io.hugewise.memory;

import java.util.Arrays;

/// Spans of one class that may have free slots, by their first units: the lowest is taken first, so that higher
/// spans become empty and serve other classes.
///
/// Any thread adds spans, to a list; the list is moved into a heap and taken from under the lock of the class. Spans of
/// which a cache owns words with free slots may be in a list of the cache instead.
final class SpanQueue {
    /// No span.
    static final int NONE = -1;

    private final Units units;
    private final int sizeClass;
    /// Links of all classes' lists, by first unit; a span is in one list at most.
    private final int[] next;
    /// The head of the list.
    private final int[] head = {NONE};

    private int[] heap = new int[8];
    private int size;

    SpanQueue(Units units, int sizeClass, int[] next) {
        this.units = units;
        this.sizeClass = sizeClass;
        this.next = next;
    }

    /// Whether a span of this class starts at the unit.
    boolean isOurs(int info) {
        return UnitInfo.kind(info) == UnitInfo.SLOTS && UnitInfo.sizeClass(info) == sizeClass && UnitInfo.back(info) == 0;
    }

    /// Adds a span, unless it is queued, or has ended.
    void add(int first) {
        addTo(head, 0, first);
    }

    /// Adds a span to a list of a cache, unless it is queued, or has ended; returns whether it did.
    boolean addTo(int[] heads, int index, int first) {
        int info;
        do {
            info = units.info(first);
            if (!isOurs(info) || (info & UnitInfo.QUEUED) != 0) {
                return false;
            }
        } while (!units.changeInfo(first, info, info | UnitInfo.QUEUED));
        push(heads, index, first);
        return true;
    }

    private void push(int[] heads, int index, int first) {
        int before;
        do {
            before = Atomics.get(heads, index);
            next[first] = before;
        } while (!Atomics.change(heads, index, before, first));
    }

    /// Moves all spans of a cache's list into the list of the class. Without the lock.
    void addAll(int[] heads, int index) {
        for (int first = Atomics.exchange(heads, index, NONE); first != NONE; ) {
            int following = next[first];
            push(head, 0, first);
            first = following;
        }
    }

    /// Takes a span off a cache's list, all of which was taken; returns the following one, [#NONE] after the last.
    int unlink(int first) {
        int following = next[first];
        int info = units.info(first);
        while (!units.changeInfo(first, info, info & ~UnitInfo.QUEUED)) {
            info = units.info(first);
        }
        return following;
    }

    /// Moves the list into the heap.
    void moveList() {
        for (int first = Atomics.exchange(head, 0, NONE); first != NONE; ) {
            int following = next[first];
            if (hasRoom()) {
                mark(first, UnitInfo.HEAPED);
                push(first);
            } else {
                push(head, 0, first);
            }
            first = following;
        }
    }

    /// Whether the heap has room for a span, or gets it: the Java heap may have no memory.
    private boolean hasRoom() {
        if (size == heap.length) {
            dropEnded();
        }
        if (size == heap.length) {
            try {
                heap = Arrays.copyOf(heap, heap.length * 2);
            } catch (OutOfMemoryError _) {
                return false;
            }
        }
        return true;
    }

    private void mark(int first, int flag) {
        int info = units.info(first);
        while (!units.changeInfo(first, info, info | flag)) {
            info = units.info(first);
        }
    }

    /// Takes the lowest queued span; -1 if there is none.
    int poll() {
        moveList();
        while (size > 0) {
            int first = heap[0];
            heap[0] = heap[--size];
            sink(0);
            if (unqueue(first)) {
                return first;
            }
        }
        return NONE;
    }

    /// Whether the span was queued here; now it is not.
    private boolean unqueue(int first) {
        while (true) {
            int info = units.info(first);
            if (!isHeaped(info)) {
                return false;
            }
            if (units.changeInfo(first, info, info & ~(UnitInfo.QUEUED | UnitInfo.HEAPED))) {
                return true;
            }
        }
    }

    /// False for a span that has ended; another one may have begun at the same unit.
    private boolean isHeaped(int info) {
        return isOurs(info) && (info & UnitInfo.HEAPED) != 0;
    }

    /// Spans in the heap; some may have ended.
    int[] heaped() {
        moveList();
        return Arrays.copyOf(heap, size);
    }

    private void push(int first) {
        int at = size++;
        for (int parent = (at - 1) / 2; at > 0 && heap[parent] > first; parent = (at - 1) / 2) {
            heap[at] = heap[parent];
            at = parent;
        }
        heap[at] = first;
    }

    private void sink(int from) {
        int first = heap[from];
        int at = from;
        for (int child = 2 * at + 1; child < size; child = 2 * at + 1) {
            child += child + 1 < size && heap[child + 1] < heap[child] ? 1 : 0;
            if (heap[child] >= first) {
                break;
            }
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = first;
    }

    /// Drops spans that have ended, or that are queued twice because they have ended and begun again.
    private void dropEnded() {
        Arrays.sort(heap, 0, size);
        int kept = 0;
        for (int i = 0; i < size; i++) {
            boolean isNew = kept == 0 || heap[kept - 1] != heap[i];
            if (isNew && isHeaped(units.info(heap[i]))) {
                heap[kept++] = heap[i];
            }
        }
        // A sorted array is a heap.
        size = kept;
    }
}
