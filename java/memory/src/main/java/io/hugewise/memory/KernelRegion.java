package io.hugewise.memory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/// Memory that Java itself requests from the kernel, where libhugewise cannot be loaded: on base pages, transparent
/// huge pages, or pages of a pool through `mmap`. Limits of control groups are not checked.
///
/// @param why why libhugewise is not used
record KernelRegion(MemorySegment memory, Obtained obtained, MachinePages pages, String why) implements Region {
    static final int READ_WRITE = 3;
    static final int PRIVATE_ANONYMOUS = 0x22;
    static final int FIXED = 0x10;
    static final int NORESERVE = 0x4000;
    static final int HUGETLB = 0x40000;
    private static final int SIZE_SHIFT = 26;

    /// @throws HugeMemoryException if no backing is available
    static KernelRegion reserve(HugeOptions options, Arena arena, String why) {
        MachinePages pages = MachinePages.current();
        List<Fallback> fallbacks = new ArrayList<>();
        int errno = 0;
        for (Backing backing : options.backings()) {
            Answer answer = reserve(options, backing, arena, pages, why);
            if (answer.memory != null) {
                return new KernelRegion(answer.memory, new Obtained(backing, answer.pageSize, fallbacks), pages, why);
            }
            fallbacks.add(new Fallback(backing, answer.cause));
            errno = answer.errno;
        }
        throw HugeMemoryException.noneOf(options.size(), fallbacks, errno);
    }

    /// Memory on one backing, or why there is none.
    private record Answer(@Nullable MemorySegment memory, long pageSize, String cause, int errno) {
        static Answer no(String cause, long answer) {
            return new Answer(null, 0, cause, (int) -answer);
        }
    }

    private static Answer reserve(HugeOptions options, Backing backing, Arena arena, MachinePages pages, String why) {
        boolean isPooled = backing.kind() == Backing.Kind.HUGETLB;
        long pageSize = switch (backing.kind()) {
            case BASE -> pages.base();
            case THP -> pages.thp();
            case HUGETLB -> backing.pageSize() == 0 ? pages.hugetlb() : backing.pageSize();
            case SHM -> 0;
        };
        if (backing.kind() == Backing.Kind.SHM) {
            return Answer.no("shared memory needs libhugewise: " + why, 0);
        }
        if (pageSize == 0) {
            return Answer.no("this kernel has no hugetlb pools, or does not say of which size", 0);
        }
        if (options.size() > Long.MAX_VALUE / 4 - pageSize) {
            return Answer.no("exceeds the address space of this machine", -SystemCall.ENOMEM);
        }
        long length = options.size() + pageSize - 1 & -pageSize;
        // Address space around the memory keeps the kernel from merging it with a neighbour.
        long whole = length + 2 * pageSize;
        long outer = SystemCall.MMAP.call(0, whole, 0, PRIVATE_ANONYMOUS | NORESERVE, -1, 0);
        if (isError(outer)) {
            return Answer.no(SystemCall.text(outer) + ": " + Bytes.text(whole) + " of address space are not available", outer);
        }
        long start = (outer & -pageSize) + pageSize;
        int pool = isPooled ? HUGETLB | Long.numberOfTrailingZeros(pageSize) << SIZE_SHIFT : 0;
        long mapped = SystemCall.MMAP.call(start, length, READ_WRITE, PRIVATE_ANONYMOUS | FIXED | pool, -1, 0);
        String cause = "";
        if (isError(mapped)) {
            cause = SystemCall.text(mapped) + ": " + why(mapped, isPooled, pageSize, length, pages);
        } else {
            if (backing.kind() == Backing.Kind.BASE) {
                // A kernel without transparent huge pages refuses it: the memory is usable, and its coverage is read.
                Advice.advise(start, length, Advice.NOHUGEPAGE);
            }
            if (backing.kind() == Backing.Kind.THP) {
                mapped = Advice.advise(start, length, Advice.HUGEPAGE);
                cause = mapped == -SystemCall.EINVAL
                        ? "this kernel has no transparent huge pages"
                        : "transparent huge pages could not be requested: " + SystemCall.text(mapped);
            }
            if (!isError(mapped) && options.node().isPresent()) {
                int node = options.node().getAsInt();
                mapped = Advice.bind(start, length, node);
                cause = "memory could not be bound to node " + node + ": " + SystemCall.text(mapped);
            }
        }
        if (isError(mapped)) {
            SystemCall.MUNMAP.call(outer, whole);
            return Answer.no(cause, mapped);
        }
        Advice.name(start, length, options.name().orElse(""));
        MemorySegment memory = MemorySegment.ofAddress(start).reinterpret(options.size(), arena, _ -> {
            SystemCall.MUNMAP.call(outer, whole);
            Events.release(options);
        });
        return new Answer(memory, pageSize, "", 0);
    }

    /// The meaning of an error of `mmap`.
    private static String why(long answer, boolean isPooled, long pageSize, long length, MachinePages pages) {
        if (answer == -SystemCall.EINVAL && isPooled) {
            return "this machine has no pool of " + Bytes.text(pageSize) + " pages";
        }
        if (answer == -SystemCall.EAGAIN) {
            return "the process locks its memory (mlockall), up to the limit RLIMIT_MEMLOCK";
        }
        return isPooled && answer == -SystemCall.ENOMEM
                ? pages.lack(pageSize, length / pageSize)
                : Bytes.text(length) + " of address space or memory are not available";
    }

    static boolean isError(long answer) {
        return answer < 0 && answer > -4096;
    }

    @Override
    public Coverage coverage() {
        long end = memory.address() + memory.byteSize() + obtained.pageSize() - 1 & -obtained.pageSize();
        Coverage whole = Smaps.coverage(Path.of("/proc/self/smaps"), memory.address(), end, pages.base(), pages.thp());
        return switch (whole) {
            case Coverage.Known known -> new Coverage.Known(memory.byteSize(), known.pages());
            case Coverage.Unknown unknown -> new Coverage.Unknown(memory.byteSize(), unknown.reason());
        };
    }

    @Override
    public Pretouched pretouch(long offset, long length, int threads) {
        boolean isPooled = obtained.backing().kind() == Backing.Kind.HUGETLB;
        return new KernelPretouch(memory, isPooled ? obtained.pageSize() : pages.base(), pages).run(offset, length, threads);
    }
}
