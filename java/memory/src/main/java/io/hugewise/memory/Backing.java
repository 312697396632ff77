package io.hugewise.memory;

import java.util.Locale;

/// How memory is requested.
///
/// @param kind the kind of backing
/// @param pageSize page size in bytes; 0 for the default huge page size, and for `BASE` and `THP`
public record Backing(Kind kind, long pageSize) {
    /// The kinds of backing.
    public enum Kind {
        /// Base pages; transparent huge pages are disabled for the memory.
        BASE,
        /// Transparent huge pages: allocated by the kernel at first touch, if available.
        THP,
        /// Huge pages of a reserved pool, through `mmap`.
        HUGETLB,
        /// Huge pages of a reserved pool, through SysV shared memory; needs CAP_IPC_LOCK or a group in
        /// `vm.hugetlb_shm_group`.
        SHM;

        String word() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /// Checks the page size.
    ///
    /// @throws IllegalArgumentException if it is not a power of two, or the kind has no page size
    public Backing {
        if (pageSize != 0 && kind != Kind.HUGETLB && kind != Kind.SHM) {
            throw new IllegalArgumentException(kind.word() + " takes no page size: only hugetlb and shm do");
        }
        if (pageSize < 0 || Long.bitCount(pageSize) > 1) {
            throw new IllegalArgumentException("a page size is a power of two, not " + pageSize);
        }
    }

    /// {@return a request for base pages}
    public static Backing base() {
        return new Backing(Kind.BASE, 0);
    }

    /// {@return a request for transparent huge pages}
    public static Backing thp() {
        return new Backing(Kind.THP, 0);
    }

    /// {@return a request for pages of the pool of the default huge page size}
    public static Backing hugetlb() {
        return new Backing(Kind.HUGETLB, 0);
    }

    /// {@return a request for pages of the pool of one size}
    /// @param pageSize page size in bytes
    public static Backing hugetlb(long pageSize) {
        return new Backing(Kind.HUGETLB, pageSize);
    }

    /// {@return a request for pages of the pool of the default huge page size, through shared memory}
    public static Backing shm() {
        return new Backing(Kind.SHM, 0);
    }

    /// {@return a request for pages of the pool of one size, through shared memory}
    /// @param pageSize page size in bytes
    public static Backing shm(long pageSize) {
        return new Backing(Kind.SHM, pageSize);
    }

    /// Parses the text of [#toString]: `base`, `thp`, `hugetlb`, `hugetlb:1GiB`, `shm:2MiB`.
    ///
    /// @param text a backing, as in `hugewise` commands
    /// @return the backing
    /// @throws IllegalArgumentException if the text is not a backing
    public static Backing parse(String text) {
        int colon = text.indexOf(':');
        String word = colon < 0 ? text : text.substring(0, colon);
        for (Kind kind : Kind.values()) {
            if (kind.word().equals(word)) {
                return new Backing(kind, colon < 0 ? 0 : Bytes.parse(text.substring(colon + 1)));
            }
        }
        throw new IllegalArgumentException(
                "'" + text + "' is not a backing: use base, thp, hugetlb[:SIZE] or shm[:SIZE], like hugetlb:1GiB");
    }

    @Override
    public String toString() {
        return pageSize == 0 ? kind.word() : kind.word() + ":" + Bytes.text(pageSize);
    }
}
