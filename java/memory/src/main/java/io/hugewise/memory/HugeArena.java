package io.hugewise.memory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;

/// An arena on huge pages: one reserved piece of memory, handed out from its beginning to its end, and
/// given back as a whole.
///
/// ```java
/// try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(1L << 30).pretouch())) {
///     MemorySegment table = arena.allocate(512L << 20);
///     System.out.println(arena.backing() + ", " + arena.coverage());
/// }
/// ```
///
/// A segment of a huge page or more begins on a boundary of huge pages, whatever alignment is asked for.
/// All segments hold zeros, and live until the arena is closed: whoever uses one later gets an
/// [IllegalStateException], as with any arena. What single objects are to be freed from is a
/// [HugeAllocator], or a [BlockPool].
///
/// What was asked for need not be what was got: [#backing] says how the memory was got, and why not
/// better; [#coverage] on which pages the kernel really has it. Nothing is printed.
///
/// [#close] of a shared arena waits for all threads once: reserve rarely, and much.
public final class HugeArena implements Arena {
    private final HugeOptions options;
    private final Arena scope;
    private final Region region;
    private final MemorySegment memory;
    /// Where the next segment may begin.
    private final AtomicLong next = new AtomicLong();

    private HugeArena(HugeOptions options, Arena scope, Region region) {
        this.options = options;
        this.scope = scope;
        this.region = region;
        this.memory = region.memory();
    }

    /// An arena that any thread may use, and close.
    ///
    /// @param options how much, and on which pages
    /// @return the arena
    /// @throws HugeMemoryException if no backing could be had, or the memory not be made present; the
    ///     message says of each why, with the numbers
    /// @throws NativeLibraryException if the library could not be loaded, or native access is not allowed
    public static HugeArena ofShared(HugeOptions options) {
        return open(options, Arena.ofShared(), Platform.current());
    }

    /// An arena of the calling thread alone.
    ///
    /// @param options how much, and on which pages
    /// @return the arena
    /// @throws HugeMemoryException if no backing could be had, or the memory not be made present; the
    ///     message says of each why, with the numbers
    /// @throws NativeLibraryException if the library could not be loaded, or native access is not allowed
    public static HugeArena ofConfined(HugeOptions options) {
        return open(options, Arena.ofConfined(), Platform.current());
    }

    static HugeArena open(HugeOptions options, Arena scope, Platform platform) {
        try {
            var event = new Events.ReserveEvent();
            event.begin();
            Region region = platform.folder().isPresent() || System.getProperty(NativeLibrary.PROPERTY) != null
                    ? NativeRegion.reserve(options, scope, Libhugewise.get())
                    : JvmRegion.reserve(options, scope, platform);
            event.commit(options, region.obtained());
            Events.fallbacks(options, region.obtained());
            var arena = new HugeArena(options, scope, region);
            options.pretouchThreads().ifPresent(threads -> arena.pretouch(0, options.size(), threads));
            return arena;
        } catch (Throwable error) {
            scope.close();
            throw error;
        }
    }

    /// Hands out the next bytes, all zero.
    ///
    /// @param byteSize how many, in bytes
    /// @param byteAlignment what the address is a multiple of: a power of two
    /// @return memory that lives until the arena is closed
    /// @throws MemoryExhaustedException if the arena has not so much left
    /// @throws IllegalArgumentException if the size is negative, or the alignment no power of two
    /// @throws IllegalStateException if the arena is closed
    /// @throws WrongThreadException if it belongs to another thread
    @Override
    public MemorySegment allocate(long byteSize, long byteAlignment) {
        checkUsable();
        if (byteSize < 0) {
            throw new IllegalArgumentException("a size is not negative: " + byteSize);
        }
        if (byteAlignment <= 0 || Long.bitCount(byteAlignment) != 1) {
            throw new IllegalArgumentException("an alignment is a power of two, not " + byteAlignment);
        }
        long pageSize = region.obtained().pageSize();
        long alignment = byteSize < pageSize ? byteAlignment : Math.max(byteAlignment, pageSize);
        while (true) {
            long used = next.get();
            // An address, so that alignments above that of the region come out right, too.
            long start = memory.address() + used + alignment - 1 & -alignment;
            long offset = start - memory.address();
            if (offset < 0 || offset > memory.byteSize() || byteSize > memory.byteSize() - offset) {
                throw new MemoryExhaustedException(this + " has " + Bytes.text(memory.byteSize() - used)
                        + " left, and " + Bytes.text(byteSize) + " are wanted, aligned to " + Bytes.text(alignment)
                        + ": reserve more");
            }
            if (next.compareAndSet(used, offset + byteSize)) {
                return memory.asSlice(offset, byteSize, byteAlignment);
            }
        }
    }

    /// All that is left, of which nothing is left then.
    MemorySegment rest() {
        checkUsable();
        long used = next.getAndSet(memory.byteSize());
        return memory.asSlice(used);
    }

    private void checkUsable() {
        if (!scope.scope().isAlive()) {
            throw new IllegalStateException(this + " is closed");
        }
        if (!memory.isAccessibleBy(Thread.currentThread())) {
            throw new WrongThreadException(this + " belongs to another thread");
        }
    }

    /// {@return how the memory was got, and why not better}
    public Obtained backing() {
        return region.obtained();
    }

    /// On which pages the memory really is now, as the kernel tells it. Costs a look at the page table of
    /// the arena: microseconds on huge pages, about a millisecond for each GiB on base pages.
    ///
    /// @return the coverage, or why it could not be told
    /// @throws IllegalStateException if the arena is closed
    public Coverage coverage() {
        checkUsable();
        return region.coverage();
    }

    /// Makes all of the memory present, as [HugeOptions#pretouch()] does. Contents stay, and the memory may
    /// be used meanwhile.
    ///
    /// @return what it took
    /// @throws HugeMemoryException if there was not enough memory; what was made present before that stays
    /// @throws IllegalStateException if the arena is closed
    public Pretouched pretouch() {
        return pretouch(0, memory.byteSize(), 0);
    }

    /// Makes the pages of a segment present, by so many threads.
    ///
    /// @param segment a segment of this arena
    /// @param threads how many
    /// @return what it took
    /// @throws IllegalArgumentException if it is no segment of this arena
    /// @throws HugeMemoryException if there was not enough memory; what was made present before that stays
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
        var event = new Events.PretouchEvent();
        event.begin();
        Pretouched pretouched = region.pretouch(offset, length, threads);
        event.commit(options, pretouched);
        return pretouched;
    }

    /// {@return how much was reserved, in bytes}
    public long size() {
        return memory.byteSize();
    }

    /// {@return how much was handed out, in bytes, with what lies between segments for their alignment}
    public long used() {
        return next.get();
    }

    /// {@return the name that it was given, if any}
    public Optional<String> name() {
        return options.name();
    }

    @Override
    public MemorySegment.Scope scope() {
        return scope.scope();
    }

    /// Gives the memory back to the kernel. Segments cannot be used any more.
    ///
    /// @throws IllegalStateException if it is closed already, or a thread is at work in a segment
    /// @throws WrongThreadException if it belongs to another thread
    @Override
    public void close() {
        scope.close();
    }

    @Override
    public String toString() {
        return "arena" + options.name().map(name -> " " + name).orElse("") + " of " + Bytes.text(options.size());
    }
}
