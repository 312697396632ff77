package io.hugewise.memory;

import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/// Page sizes of memory, read from the kernel; or why they are unknown.
///
/// A switch over both cases is exhaustive:
///
/// ```java
/// switch (arena.coverage()) {
///     case Coverage.Known known -> log(known.resident(), known.hugeShare());
///     case Coverage.Unknown unknown -> log(unknown.reason());
/// }
/// ```
public sealed interface Coverage {
    /// Resident bytes on pages of one size.
    ///
    /// @param pageSize page size in bytes
    /// @param bytes resident bytes on such pages
    record PageBytes(long pageSize, long bytes) {}

    /// A known coverage. It omits pages that the kernel is migrating at that moment for compaction.
    ///
    /// @param reserved reserved bytes, resident or not
    /// @param pages resident bytes by page size, the smallest first. The first entry is base pages; it
    ///     includes transparent huge pages below the PMD size (mTHP)
    record Known(long reserved, List<PageBytes> pages) implements Coverage {
        /// Copies the list.
        public Known {
            pages = List.copyOf(pages);
        }

        /// {@return the resident bytes}
        public long resident() {
            return pages.stream().mapToLong(PageBytes::bytes).sum();
        }

        /// {@return the resident bytes on pages of a size}
        /// @param pageSize page size in bytes
        public long on(long pageSize) {
            return pages.stream().filter(of -> of.pageSize == pageSize).mapToLong(PageBytes::bytes).sum();
        }

        /// {@return the resident bytes on huge pages}
        public long huge() {
            return pages.stream().skip(1).mapToLong(PageBytes::bytes).sum();
        }

        /// {@return the share of the resident bytes on huge pages, from 0 to 1; 0 if nothing is resident}
        public double hugeShare() {
            long huge = huge();
            return huge == 0 ? 0 : (double) huge / resident();
        }

        @Override
        public String toString() {
            String on = pages.stream()
                    .filter(of -> of.bytes > 0)
                    .map(of -> Bytes.text(of.bytes) + " on pages of " + Bytes.text(of.pageSize))
                    .collect(Collectors.joining(", "));
            String share = String.format(Locale.ROOT, "%.1f %% huge", 100 * hugeShare());
            return on.isEmpty() ? "nothing resident" : share + " (" + on + ")";
        }
    }

    /// An unknown coverage, which is not zero.
    ///
    /// @param reserved reserved bytes, resident or not
    /// @param reason why it is unknown
    record Unknown(long reserved, String reason) implements Coverage {
        @Override
        public String toString() {
            return "unknown: " + reason;
        }
    }

    /// Reads the coverage of any native memory of this process: all pages that hold one of its bytes. It also reads
    /// `/proc/self/smaps`, which takes time in a large process; [HugeArena#coverage] does not.
    ///
    /// @param segment a native segment, of an arena or mapped from a file
    /// @return the coverage, or why it is unknown
    /// @throws IllegalArgumentException if the segment is on the heap
    /// @throws IllegalStateException if its arena is closed
    /// @throws WrongThreadException if it belongs to another thread
    static Coverage of(MemorySegment segment) {
        if (!segment.isNative()) {
            throw new IllegalArgumentException("native memory is needed, not " + segment);
        }
        if (!segment.scope().isAlive()) {
            throw new IllegalStateException("the arena of " + segment + " is closed");
        }
        if (!segment.isAccessibleBy(Thread.currentThread())) {
            throw new WrongThreadException(segment + " belongs to another thread");
        }
        Platform platform = Platform.current();
        if (platform.folder().isEmpty()) {
            return new Unknown(segment.byteSize(), NativeLibrary.unsupported(platform));
        }
        return Libhugewise.find()
                .map(library -> NativeRegion.coverage(library, segment))
                .orElseGet(() -> Smaps.coverage(segment));
    }

    /// {@return the reserved bytes, resident or not}
    long reserved();
}
