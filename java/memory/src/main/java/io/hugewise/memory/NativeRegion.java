package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.hugewise.memory.Coverage.PageBytes;
import java.lang.foreign.Arena;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/// Memory reserved by libhugewise, with its handle.
record NativeRegion(Libhugewise library, MemorySegment handle, MemorySegment memory, Obtained obtained)
        implements Region {
    static final StructLayout RESERVE_OPTIONS = MemoryLayout.structLayout(
            JAVA_LONG.withName("struct_size"), ADDRESS.withName("name"), JAVA_INT.withName("bind"), JAVA_INT.withName("node"));
    static final StructLayout PAGE_BYTES =
            MemoryLayout.structLayout(JAVA_LONG.withName("page_size"), JAVA_LONG.withName("bytes"));
    static final StructLayout PRETOUCH_OPTIONS = MemoryLayout.structLayout(
            JAVA_LONG.withName("struct_size"),
            JAVA_LONG.withName("chunk"),
            JAVA_INT.withName("threads"),
            JAVA_INT.withName("way"),
            ADDRESS.withName("progress"),
            ADDRESS.withName("context"));
    static final StructLayout PRETOUCHED = MemoryLayout.structLayout(
            JAVA_LONG.withName("struct_size"),
            JAVA_LONG.withName("wanted"),
            JAVA_LONG.withName("done"),
            JAVA_LONG.withName("chunk"),
            JAVA_LONG.withName("page_size"),
            JAVA_LONG.withName("elapsed_ns"),
            JAVA_LONG.withName("minor_faults"),
            JAVA_LONG.withName("major_faults"),
            JAVA_LONG.withName("thp_fallbacks"),
            JAVA_INT.withName("threads"),
            JAVA_INT.withName("way"));

    /// Maximum number of page sizes of a machine.
    private static final int PAGE_SIZES = 8;

    static NativeRegion reserve(HugeOptions options, Arena arena, Libhugewise library) {
        MemorySegment handle;
        try (Arena local = Arena.ofConfined()) {
            MemorySegment how = local.allocate(RESERVE_OPTIONS);
            how.set(JAVA_LONG, offset(RESERVE_OPTIONS, "struct_size"), how.byteSize());
            options.name().ifPresent(name -> how.set(ADDRESS, offset(RESERVE_OPTIONS, "name"), text(local, name)));
            options.node().ifPresent(node -> {
                how.set(JAVA_INT, offset(RESERVE_OPTIONS, "bind"), 1);
                how.set(JAVA_INT, offset(RESERVE_OPTIONS, "node"), node);
            });
            String backings = options.backings().stream().map(NativeRegion::exact).collect(Collectors.joining(","));
            MemorySegment place = local.allocate(ADDRESS);
            library.reserveAt(options.size(), text(local, backings), how, place);
            handle = place.get(ADDRESS, 0);
        }
        MemorySegment memory;
        try {
            memory = library.address(handle).reinterpret(options.size(), arena, _ -> {
                try {
                    library.release(handle);
                } catch (HugeMemoryException _) {
                    // The kernel refuses to unmap it: the pages are released, and the addresses stay.
                }
                Events.release(options);
            });
        } catch (Throwable error) {
            library.release(handle);
            throw error;
        }
        return new NativeRegion(library, handle, memory, obtained(library, handle));
    }

    /// The backing with its page size in bytes: the IEC text of a size may be rounded.
    private static String exact(Backing backing) {
        String word = backing.kind().word();
        return backing.pageSize() == 0 ? word : word + ":" + backing.pageSize();
    }

    /// Replaces zero bytes, which would end a C string.
    private static MemorySegment text(Arena arena, String text) {
        return arena.allocateFrom(text.replace('\0', ' '));
    }

    private static Obtained obtained(Libhugewise library, MemorySegment handle) {
        List<Fallback> fallbacks = new ArrayList<>();
        for (long i = 0; i < library.fallbacks(handle); i++) {
            Backing wanted = Backing.parse(library.fallbackBacking(handle, i));
            fallbacks.add(new Fallback(wanted, library.fallbackCause(handle, i)));
        }
        return new Obtained(Backing.parse(library.backing(handle)), library.pageSize(handle), fallbacks);
    }

    @Override
    public Coverage coverage() {
        return coverage(memory.byteSize(), (pages, count) -> library.coverage(handle, pages, PAGE_SIZES, count));
    }

    /// The coverage of any memory of this process.
    static Coverage coverage(Libhugewise library, MemorySegment segment) {
        return coverage(segment.byteSize(), (pages, count) -> library.coverageOf(segment, pages, PAGE_SIZES, count));
    }

    /// Writes a coverage; returns why it is unknown.
    private interface Reading {
        @Nullable String into(MemorySegment pages, MemorySegment count);
    }

    private static Coverage coverage(long size, Reading reading) {
        try (Arena local = Arena.ofConfined()) {
            MemorySegment pages = local.allocate(PAGE_BYTES, PAGE_SIZES);
            MemorySegment count = local.allocate(JAVA_LONG);
            String unknown = reading.into(pages, count);
            if (unknown != null) {
                return new Coverage.Unknown(size, unknown);
            }
            List<PageBytes> found = pages.asSlice(0, count.get(JAVA_LONG, 0) * PAGE_BYTES.byteSize())
                    .elements(PAGE_BYTES)
                    .map(of -> new PageBytes(
                            of.get(JAVA_LONG, offset(PAGE_BYTES, "page_size")), of.get(JAVA_LONG, offset(PAGE_BYTES, "bytes"))))
                    .toList();
            return new Coverage.Known(size, found);
        }
    }

    @Override
    public Pretouched pretouch(long offset, long length, int threads) {
        try (Arena local = Arena.ofConfined()) {
            MemorySegment how = local.allocate(PRETOUCH_OPTIONS);
            how.set(JAVA_LONG, offset(PRETOUCH_OPTIONS, "struct_size"), how.byteSize());
            how.set(JAVA_INT, offset(PRETOUCH_OPTIONS, "threads"), threads);
            MemorySegment done = local.allocate(PRETOUCHED);
            done.set(JAVA_LONG, offset(PRETOUCHED, "struct_size"), done.byteSize());
            library.pretouch(handle, offset, length, how, done);
            long fallbacks = done.get(JAVA_LONG, offset(PRETOUCHED, "thp_fallbacks"));
            return new Pretouched(
                    done.get(JAVA_LONG, offset(PRETOUCHED, "done")),
                    Duration.ofNanos(done.get(JAVA_LONG, offset(PRETOUCHED, "elapsed_ns"))),
                    done.get(JAVA_INT, offset(PRETOUCHED, "threads")),
                    fallbacks == -1 ? OptionalLong.empty() : OptionalLong.of(fallbacks));
        }
    }

    private static long offset(StructLayout struct, String field) {
        return struct.byteOffset(MemoryLayout.PathElement.groupElement(field));
    }
}
