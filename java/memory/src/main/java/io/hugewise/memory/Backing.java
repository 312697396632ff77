package io.hugewise.memory;

import java.util.Locale;

/// How memory is asked for.
///
/// @param kind the way
/// @param pageSize the size of the pages, in bytes; 0 for the machine's default one, and for the kinds
///     that take none
public record Backing(Kind kind, long pageSize) {
    /// The ways to ask for memory.
    public enum Kind {
        /// Base pages: huge ones are kept away.
        BASE,
        /// Transparent huge pages: the kernel gives them where it can, when the memory is touched.
        THP,
        /// Huge pages of a pool that was set aside before, by `mmap`.
        HUGETLB,
        /// The same by SysV shared memory; it needs CAP_IPC_LOCK or a group in `vm.hugetlb_shm_group`.
        SHM;

        String word() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /// Checks the page size.
    ///
    /// @throws IllegalArgumentException if it is no power of two, or the kind takes none
    public Backing {
        if (pageSize != 0 && kind != Kind.HUGETLB && kind != Kind.SHM) {
            throw new IllegalArgumentException(kind.word() + " takes no page size: only hugetlb and shm do");
        }
        if (pageSize < 0 || Long.bitCount(pageSize) > 1) {
            throw new IllegalArgumentException("a page size is a power of two, not " + pageSize);
        }
    }

    /// {@return base pages}
    public static Backing base() {
        return new Backing(Kind.BASE, 0);
    }

    /// {@return transparent huge pages}
    public static Backing thp() {
        return new Backing(Kind.THP, 0);
    }

    /// {@return huge pages of the machine's default pool}
    public static Backing hugetlb() {
        return new Backing(Kind.HUGETLB, 0);
    }

    /// {@return huge pages of the pool of one size}
    /// @param pageSize the size of its pages, in bytes
    public static Backing hugetlb(long pageSize) {
        return new Backing(Kind.HUGETLB, pageSize);
    }

    /// {@return huge pages of the machine's default pool, by shared memory}
    public static Backing shm() {
        return new Backing(Kind.SHM, 0);
    }

    /// {@return huge pages of the pool of one size, by shared memory}
    /// @param pageSize the size of its pages, in bytes
    public static Backing shm(long pageSize) {
        return new Backing(Kind.SHM, pageSize);
    }

    /// Reads what [#toString] writes: `base`, `thp`, `hugetlb`, `hugetlb:1GiB`, `shm:2MiB`.
    ///
    /// @param text a backing, as everywhere in Hugewise
    /// @return the backing
    /// @throws IllegalArgumentException if it is none
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
