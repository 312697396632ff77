package io.hugewise.memory;

import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/// On which pages memory really is, as the kernel tells it; or why it does not.
///
/// A switch over the two has all cases:
///
/// ```java
/// switch (arena.coverage()) {
///     case Coverage.Known known -> log(known.resident(), known.hugeShare());
///     case Coverage.Unknown unknown -> log(unknown.reason());
/// }
/// ```
public sealed interface Coverage {
    /// How much lies on pages of one size.
    ///
    /// @param pageSize the size of the pages, in bytes
    /// @param bytes the memory that is present on them, in bytes
    record PageBytes(long pageSize, long bytes) {}

    /// What the kernel says. Pages that it is moving at that moment, to compact memory, are not in it.
    ///
    /// @param reserved how many bytes there are, present or not
    /// @param pages how much is present on which pages, the smallest first: base pages are always there,
    ///     and hold transparent huge pages that are smaller than the usual ones (mTHP), too
    record Known(long reserved, List<PageBytes> pages) implements Coverage {
        /// Copies the list.
        public Known {
            pages = List.copyOf(pages);
        }

        /// {@return how many bytes are present}
        public long resident() {
            return pages.stream().mapToLong(PageBytes::bytes).sum();
        }

        /// {@return how many bytes are present on pages of a size}
        /// @param pageSize the size of the pages, in bytes
        public long on(long pageSize) {
            return pages.stream().filter(of -> of.pageSize == pageSize).mapToLong(PageBytes::bytes).sum();
        }

        /// {@return the share of what is present that is on huge pages, from 0 to 1; 0 where nothing is
        /// present}
        public double hugeShare() {
            long huge = pages.stream().skip(1).mapToLong(PageBytes::bytes).sum();
            return huge == 0 ? 0 : (double) huge / resident();
        }

        @Override
        public String toString() {
            String on = pages.stream()
                    .filter(of -> of.bytes > 0)
                    .map(of -> Bytes.text(of.bytes) + " on pages of " + Bytes.text(of.pageSize))
                    .collect(Collectors.joining(", "));
            String share = String.format(Locale.ROOT, "%.1f %% huge", 100 * hugeShare());
            return on.isEmpty() ? "nothing present" : share + " (" + on + ")";
        }
    }

    /// It could not be told: that is not zero.
    ///
    /// @param reserved how many bytes there are, present or not
    /// @param reason why
    record Unknown(long reserved, String reason) implements Coverage {
        @Override
        public String toString() {
            return "could not be told: " + reason;
        }
    }

    /// {@return how many bytes there are, present or not}
    long reserved();
}
