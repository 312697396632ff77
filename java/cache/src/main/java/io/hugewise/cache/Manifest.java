package io.hugewise.cache;

import io.hugewise.memory.SegmentPool;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.charset.StandardCharsets;
import java.util.Comparator;
import java.util.stream.IntStream;

/// What the segments of a cache are used for, and where its index is. In a cache with a file, it lies in the first
/// segments, so that the next process finds the entries.
///
/// ```text
///      0 magic │ 8 state │ 16 checksum of the settings │ 24 seed │ 32 start of the clock │ 40 settings, UTF-8, zeros
///   1024 number of buckets │ time of the last maintenance                      kept up to date
///   1040 what is known when the cache is closed, with the checksum of all below
///   4096 use and order of each segment, 8 bytes                                kept up to date
///        fields of each segment, then its checksum (CRC32C)                    when the cache is closed
/// ```
final class Manifest {
    /// What a segment is used for; [#PART] is for chunks.
    enum Use {
        FREE(0), MANIFEST(1), TABLE(2), OVERFLOW(3), SKETCH(4), WINDOW(5), MAIN(6), PART(7);

        private static final Use[] ALL = values();
        private final int code;

        Use(int code) {
            this.code = code;
        }
    }

    /// Of the file's last process.
    enum State {
        /// It did not begin.
        EMPTY(0),
        /// It has not closed the cache. No changed bit makes one of these numbers another one.
        OPEN(0x6f70_656e),
        CLOSED(0x636c_6f73);

        private final int code;

        State(int code) {
            this.code = code;
        }
    }

    /// Numbers that are kept, each of 8 bytes.
    enum Figure {
        BUCKETS(0), LAST_NANOS(8),
        // When the cache is closed.
        ENTRIES(16), USED_OVERFLOW(24), FREE_OVERFLOW(32), WINDOW_SHARE(40);

        private final int offset;

        Figure(int offset) {
            this.offset = offset;
        }
    }

    static final long MAGIC = 0x4855_4745_4341_4348L; // HUGECACH
    private static final int STATE = 8;
    private static final int SETTINGS_CHECKSUM = 16;
    private static final int SEED = 24;
    private static final int START = 32;
    private static final int SETTINGS = 40;
    private static final int NUMBERS = 1024;
    private static final int CHECKSUM = 2048;
    private static final int USES = 4096;
    private static final int USE_SHIFT = 56;
    private static final long ORDER = (1L << USE_SHIFT) - 1;
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

    private final MemorySegment memory;
    private final int segments;

    /// @param memory has zeros, or what a manifest has written
    Manifest(MemorySegment memory, int segments) {
        this.memory = memory.asSlice(0, bytes(segments));
        this.segments = segments;
    }

    /// A manifest for a cache without a file.
    static Manifest onHeap(int segments) {
        return new Manifest(MemorySegment.ofArray(new long[(int) (bytes(segments) / Long.BYTES)]), segments);
    }

    /// Whether it is in a file.
    boolean isKept() {
        return memory.isNative();
    }

    private static long bytes(int segments) {
        return USES + (1L + Segments.FIELDS + 1) * Long.BYTES * segments;
    }

    /// Segments that a manifest in a file needs.
    static int segments(int segments, int segmentSize) {
        return Math.toIntExact((bytes(segments) + segmentSize - 1) / segmentSize);
    }

    private long get(long at) {
        return (long) LONG.getAcquire(memory, at);
    }

    private void set(long at, long value) {
        LONG.setRelease(memory, at, value);
    }

    // --- Settings ----------------------------------------------------------------------------------

    /// Begins an empty cache.
    void format(String settings, long seed, long startNanos) {
        byte[] text = settings.getBytes(StandardCharsets.UTF_8);
        if (text.length > NUMBERS - SETTINGS) {
            throw new IllegalArgumentException("the formats of both serializers are too long: " + settings);
        }
        set(0, MAGIC);
        set(STATE, State.EMPTY.code);
        memory.asSlice(SETTINGS_CHECKSUM).fill((byte) 0);
        set(SEED, seed);
        set(START, startNanos);
        MemorySegment.copy(text, 0, memory, ValueLayout.JAVA_BYTE, SETTINGS, text.length);
        set(SETTINGS_CHECKSUM, settingsChecksum());
        setFigure(Figure.LAST_NANOS, startNanos);
    }

    /// Whether no cache has been in the file.
    boolean isNew() {
        return get(0) == 0 && get(STATE) == 0 && get(SETTINGS_CHECKSUM) == 0;
    }

    /// Why the entries of the file cannot be used; empty if they can, or some of them.
    String mismatch(String settings, long nowNanos) {
        if (state() == State.EMPTY) {
            return isNew() ? "it was not used" : "its first page is damaged";
        }
        if (get(SETTINGS_CHECKSUM) != settingsChecksum()) {
            return "its settings are damaged";
        }
        MemorySegment text = memory.asSlice(SETTINGS, NUMBERS - SETTINGS);
        int length = 0;
        while (length < text.byteSize() && text.get(ValueLayout.JAVA_BYTE, length) != 0) {
            length++;
        }
        String found = new String(text.asSlice(0, length).toArray(ValueLayout.JAVA_BYTE), StandardCharsets.UTF_8);
        if (!found.equals(settings)) {
            return "it has '" + found + "', and '" + settings + "' is expected";
        }
        return nowNanos - get(START) < 0 || nowNanos - figure(Figure.LAST_NANOS) < 0 ? "the clock is behind its times" : "";
    }

    /// What was changed in a file since it was closed; empty if nothing was.
    ///
    /// @param pool the segments of the file
    String changes(SegmentPool pool) {
        if (get(CHECKSUM) != checksum()) {
            return "the list of its segments was changed while it was closed; its intact entries were searched for";
        }
        long changed = IntStream.range(0, segments).parallel()
                .filter(segment -> hasChecksum(segment) && get(atChecksum(segment)) != Checksum.of(pool, segment)).count();
        return changed == 0 ? "" : changed + " of its segments were changed while it was closed; damaged entries were removed";
    }

    /// Prepares a manifest for a search for entries: nothing in it needs to be right.
    ///
    /// @param own number of the first segments, which have the manifest
    void repair(int own) {
        for (int segment = 0; segment < segments; segment++) {
            if (segment < own) {
                setUse(segment, Use.MANIFEST, segment);
            } else if (use(segment) == Use.MANIFEST) {
                setUse(segment, Use.FREE, 0);
            }
        }
        for (Use use : new Use[] {Use.TABLE, Use.OVERFLOW, Use.SKETCH}) {
            int[] ordered = withUse(use);
            for (int i = 0; i < ordered.length; i++) {
                setUse(ordered[i], use, i);
            }
        }
        setFigure(Figure.WINDOW_SHARE, 0);
    }

    /// Whether a segment is in use. Those of the manifest itself have another checksum.
    private boolean hasChecksum(int segment) {
        return isKept() && use(segment) != Use.FREE && use(segment) != Use.MANIFEST;
    }

    private long settingsChecksum() {
        return Hash.of(memory.asSlice(SEED, NUMBERS - SEED), MAGIC);
    }

    private long checksum() {
        return Hash.of(memory.asSlice(NUMBERS, CHECKSUM - NUMBERS), MAGIC) ^ Hash.of(memory.asSlice(USES), MAGIC);
    }

    long seed() {
        return get(SEED);
    }

    /// The time of the clock at which ticks begin.
    long startNanos() {
        return get(START);
    }

    State state() {
        for (State state : State.values()) {
            if (get(0) == MAGIC && get(STATE) == state.code) {
                return state;
            }
        }
        return State.EMPTY;
    }

    /// Notes that the memory is being changed.
    void open() {
        set(STATE, State.OPEN.code);
    }

    /// Notes that all has been written.
    ///
    /// @param pool the segments of the file
    void close(SegmentPool pool) {
        IntStream.range(0, segments).parallel().filter(this::hasChecksum)
                .forEach(segment -> set(atChecksum(segment), Checksum.of(pool, segment)));
        set(CHECKSUM, checksum());
        set(STATE, State.CLOSED.code);
    }

    // --- Contents ----------------------------------------------------------------------------------

    long figure(Figure figure) {
        return get(NUMBERS + figure.offset);
    }

    void setFigure(Figure figure, long value) {
        set(NUMBERS + figure.offset, value);
    }

    Use use(int segment) {
        long code = get(atUse(segment)) >>> USE_SHIFT;
        for (Use use : Use.ALL) {
            if (use.code == code) {
                return use;
            }
        }
        return Use.FREE;
    }

    /// Numbers of the segments of a use, in their order.
    int[] withUse(Use use) {
        return IntStream.range(0, segments).filter(segment -> use(segment) == use).boxed()
                .sorted(Comparator.comparingLong(this::order)).mapToInt(segment -> segment).toArray();
    }

    /// Place of a segment among those of the same use.
    long order(int segment) {
        return get(atUse(segment)) & ORDER;
    }

    void setUse(int segment, Use use, long order) {
        set(atUse(segment), (long) use.code << USE_SHIFT | (order & ORDER));
    }

    private static long atUse(int segment) {
        return USES + (long) segment * Long.BYTES;
    }

    long field(int segment, int field) {
        return get(atField(segment, field));
    }

    void setField(int segment, int field, long value) {
        set(atField(segment, field), value);
    }

    private long atField(int segment, int field) {
        return USES + ((long) segments + (long) segment * Segments.FIELDS + field) * Long.BYTES;
    }

    private long atChecksum(int segment) {
        return USES + ((1L + Segments.FIELDS) * segments + segment) * Long.BYTES;
    }
}
