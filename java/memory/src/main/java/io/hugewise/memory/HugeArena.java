package io.hugewise.memory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Cleaner;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/// An arena on huge pages: one reservation, allocated from its start to its end, and released as a whole.
///
/// ```java
/// try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(1L << 30).pretouch())) {
///     MemorySegment table = arena.allocate(512L << 20);
///     System.out.println(arena.backing() + ", " + arena.coverage());
/// }
/// ```
///
/// A segment of at least a huge page is aligned to huge pages, even if a smaller alignment is requested. Segments
/// are zeroed and live until the arena is closed; later use throws an [IllegalStateException], as with any
/// arena. To free single objects, use a [HugeAllocator] or a [BlockPool].
///
/// The arena may have another backing than the preferred one: [#backing] returns the backing and why better
/// ones failed; [#coverage] returns the page sizes that the kernel uses. The library prints nothing.
///
/// [#close] of a shared arena synchronises with all threads: use few, large arenas.
public final class HugeArena implements Arena {
    private final HugeOptions options;
    private final Arena scope;
    private final Region region;
    private final Obtained obtained;
    private final MemorySegment memory;
    /// Null until the arena is open.
    private Cleaner.@Nullable Cleanable reported;
    /// Offset of the next segment, in bytes, before alignment.
    private final AtomicLong next = new AtomicLong();

    private HugeArena(HugeOptions options, Arena scope, Region region, Obtained obtained) {
        this.options = options;
        this.scope = scope;
        this.region = region;
        this.obtained = obtained;
        this.memory = region.memory();
    }

    /// Opens an arena that any thread may use and close.
    ///
    /// @param options size, backings, pre-touch
    /// @return the arena
    /// @throws HugeMemoryException if no backing is available, or pre-touch fails; the message has the cause
    ///     for each backing
    /// @throws NativeLibraryException if the library could not be loaded, or native access is not allowed
    public static HugeArena ofShared(HugeOptions options) {
        return open(options, Arena::ofShared, Platform.current());
    }

    /// Opens an arena that only the calling thread may use.
    ///
    /// @param options size, backings, pre-touch
    /// @return the arena
    /// @throws HugeMemoryException if no backing is available, or pre-touch fails; the message has the cause
    ///     for each backing
    /// @throws NativeLibraryException if the library could not be loaded, or native access is not allowed
    public static HugeArena ofConfined(HugeOptions options) {
        return open(options, Arena::ofConfined, Platform.current());
    }

    static HugeArena open(HugeOptions options, Supplier<Arena> scopes, Platform platform) {
        List<Fallback> failed = new ArrayList<>();
        for (HugeOptions left = options; ; ) {
            HugeArena arena = reserve(left, scopes.get(), platform, failed);
            String lack = arena.lack();
            if (lack.isEmpty()) {
                Events.fallbacks(options, arena.obtained);
                arena.reported = Events.opened(arena);
                return arena;
            }
            arena.close();
            Backing backing = arena.obtained.backing();
            failed = new ArrayList<>(arena.obtained.fallbacks());
            failed.add(new Fallback(backing, lack));
            left = left.after(backing);
            if (left.backings().isEmpty()) {
                throw HugeMemoryException.noneOf(options.size(), failed, 0);
            }
        }
    }

    /// Reserves and populates the best available backing.
    ///
    /// @param failed better backings that failed before
    private static HugeArena reserve(HugeOptions options, Arena scope, Platform platform, List<Fallback> failed) {
        try {
            Region region = Events.reserve(options, () -> Region.reserve(options, scope, platform));
            var arena = new HugeArena(options, scope, region, region.obtained().after(failed));
            options.pretouchThreads().ifPresent(threads -> arena.pretouch(0, options.size(), threads));
            return arena;
        } catch (HugeMemoryException error) {
            scope.close();
            throw failed.isEmpty() ? error : error.after(failed);
        } catch (Throwable error) {
            scope.close();
            throw error;
        }
    }

    /// Why too little of the memory lies on huge pages; empty if enough does.
    private String lack() {
        double required = options.requiredShare();
        if (required == 0) {
            return "";
        }
        return switch (coverage()) {
            case Coverage.Unknown unknown -> "its coverage is unknown: " + unknown.reason();
            case Coverage.Known known when known.hugeShare() >= required -> "";
            case Coverage.Known known -> String.format(Locale.ROOT,
                    "%.1f %% lies on huge pages after pre-touch, and %.1f %% are required", 100 * known.hugeShare(), 100 * required);
        };
    }

    /// Allocates the next bytes, zeroed.
    ///
    /// @param byteSize size in bytes
    /// @param byteAlignment alignment in bytes, a power of two
    /// @return memory that lives until the arena is closed
    /// @throws MemoryExhaustedException if the arena has fewer bytes left
    /// @throws IllegalArgumentException if the size is negative, or the alignment is not a power of two
    /// @throws IllegalStateException if the arena is closed
    /// @throws WrongThreadException if it belongs to another thread
    @Override
    public MemorySegment allocate(long byteSize, long byteAlignment) {
        checkUsable();
        if (byteSize < 0) {
            throw new IllegalArgumentException("a size cannot be negative: " + byteSize);
        }
        if (byteAlignment <= 0 || Long.bitCount(byteAlignment) != 1) {
            throw new IllegalArgumentException("an alignment is a power of two, not " + byteAlignment);
        }
        long pageSize = obtained.pageSize();
        long alignment = byteSize < pageSize ? byteAlignment : Math.max(byteAlignment, pageSize);
        while (true) {
            long used = next.get();
            // Aligns the address, not the offset: the alignment may exceed the region's own.
            long start = memory.address() + used + alignment - 1 & -alignment;
            long offset = start - memory.address();
            if (offset < 0 || offset > memory.byteSize() || byteSize > memory.byteSize() - offset) {
                throw new MemoryExhaustedException(this + " has " + Bytes.text(memory.byteSize() - used)
                        + " left, and " + Bytes.text(byteSize) + " are wanted, aligned to " + Bytes.text(alignment)
                        + ": reserve more", byteSize, Math.clamp(memory.byteSize() - offset, 0, memory.byteSize()));
            }
            if (next.compareAndSet(used, offset + byteSize)) {
                return memory.asSlice(offset, byteSize, byteAlignment);
            }
        }
    }

    /// Takes all remaining memory.
    MemorySegment rest() {
        checkUsable();
        long used = next.getAndSet(memory.byteSize());
        return memory.asSlice(used);
    }

    private void checkOpen() {
        if (!scope.scope().isAlive()) {
            throw new IllegalStateException(this + " is closed");
        }
    }

    private void checkUsable() {
        checkOpen();
        if (!memory.isAccessibleBy(Thread.currentThread())) {
            throw new WrongThreadException(this + " belongs to another thread");
        }
    }

    /// {@return the backing, and why better ones failed}
    public Obtained backing() {
        return obtained;
    }

    /// Reads the page sizes of the memory from the page table: takes microseconds on huge pages, about 1 ms
    /// per GiB on base pages. Any thread may call it, even if the arena is confined.
    ///
    /// @return the coverage, or why it is unknown
    /// @throws IllegalStateException if the arena is closed
    public Coverage coverage() {
        checkOpen();
        try {
            return region.coverage();
        } finally {
            // Another thread may have closed the arena during the reading, which failed then, or is of other memory.
            checkOpen();
        }
    }

    /// Populates all memory with one thread per usable CPU. Contents stay, and other threads may use the
    /// memory during the call.
    ///
    /// @return bytes, duration, threads
    /// @throws HugeMemoryException if there is not enough memory; pages already populated stay
    /// @throws IllegalStateException if the arena is closed
    public Pretouched pretouch() {
        return pretouch(0, memory.byteSize(), 0);
    }

    /// Populates the pages of a segment.
    ///
    /// @param segment a segment of this arena
    /// @param threads number of threads, at least 1
    /// @return bytes, duration, threads
    /// @throws IllegalArgumentException if the segment is not of this arena, or `threads` is not positive
    /// @throws HugeMemoryException if there is not enough memory; pages already populated stay
    /// @throws IllegalStateException if the arena is closed
    public Pretouched pretouch(MemorySegment segment, int threads) {
        long offset = segment.address() - memory.address();
        if (offset < 0 || offset > memory.byteSize() || segment.byteSize() > memory.byteSize() - offset) {
            throw new IllegalArgumentException(segment + " is not of " + this);
        }
        return pretouch(offset, segment.byteSize(), HugeOptions.checkedThreads(threads));
    }

    private Pretouched pretouch(long offset, long length, int threads) {
        checkUsable();
        return Events.pretouch(options, () -> region.pretouch(offset, length, threads));
    }

    /// Puts memory that lies on base pages, for example because no huge page was free, onto transparent huge pages:
    /// one block of a huge page's size after the other, which the kernel copies. Contents stay, and other threads may
    /// use the memory during the call, but wait for the block that is being copied. The kernel may compact memory to
    /// get huge pages (`MADV_COLLAPSE`, Linux 6.1).
    ///
    /// @return the blocks that lie on huge pages now, and those that do not
    /// @throws HugeMemoryException if the backing is not `thp`, which other kinds of pages cannot become
    /// @throws IllegalStateException if the arena is closed
    public Collapsed collapse() {
        checkUsable();
        if (obtained.backing().kind() != Backing.Kind.THP) {
            throw new HugeMemoryException(this + " is on " + obtained.backing() + ": only thp can be collapsed", size(), 0);
        }
        return Collapsed.of(memory, obtained.pageSize());
    }

    /// {@return the reserved size in bytes}
    public long size() {
        return memory.byteSize();
    }

    /// {@return the allocated bytes, including padding for alignment}
    public long used() {
        return next.get();
    }

    /// {@return the arena's name; empty if it has none}
    public Optional<String> name() {
        return options.name();
    }

    @Override
    public MemorySegment.Scope scope() {
        return scope.scope();
    }

    /// Releases the memory to the kernel. The arena's segments become invalid. Without effect if the arena is closed
    /// already.
    ///
    /// @throws IllegalStateException if a thread is accessing a segment
    /// @throws WrongThreadException if the arena is open and belongs to another thread
    @Override
    public void close() {
        Cleaner.Cleanable open = reported;
        if (Scopes.close(scope) && open != null) {
            open.clean();
        }
    }

    @Override
    public String toString() {
        return "arena" + options.name().map(name -> " " + name).orElse("") + " of " + Bytes.text(options.size());
    }
}
