package io.hugewise.memory;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/// The page sizes and pools of this machine, read from files of the kernel.
///
/// @param root `/`, or a folder with files like those of the kernel
record MachinePages(Path root) {
    /// Log2 of the largest page size, in bytes.
    private static final int MAX_LOG2 = 34;

    static MachinePages current() {
        return new MachinePages(Path.of("/"));
    }

    /// Size of a base page in bytes, asked without a file: those of a process that has changed its user are not readable to
    /// it.
    long base() {
        return NativeLibrary.pageSize();
    }

    /// Size of a transparent huge page in bytes, which the kernel may not support: if its file is unreadable, the memory
    /// that a page of a page table maps, with entries of 8 bytes.
    long thp() {
        return number(root.resolve("sys/kernel/mm/transparent_hugepage/hpage_pmd_size"), base() * base() / Long.BYTES);
    }

    /// The default huge page size in bytes; 0 if the kernel has no pools.
    long hugetlb() {
        long size = field("proc/meminfo", "Hugepagesize:");
        return size >= 0 ? size << 10 : askedHugetlb();
    }

    /// The same by system calls: the kernel maps one page of that size, and does not unmap a part of it. 0 if it does not
    /// answer.
    static long askedHugetlb() {
        long base = NativeLibrary.pageSize();
        long largest = 1L << MAX_LOG2;
        // Address space around the page: nothing else is unmapped, whatever its size is.
        int reserved = KernelRegion.PRIVATE_ANONYMOUS | KernelRegion.NORESERVE;
        long around = SystemCall.MMAP.call(0, 2 * largest, 0, reserved, -1, 0);
        if (KernelRegion.isError(around)) {
            return 0;
        }
        long start = around + largest - 1 & -largest;
        long mapped = SystemCall.MMAP.call(start, base, 0, reserved | KernelRegion.FIXED | KernelRegion.HUGETLB, -1, 0);
        long size = KernelRegion.isError(mapped) ? 2 * largest : 2 * base;
        while (size <= largest && SystemCall.MUNMAP.call(start, size) != 0) {
            size *= 2;
        }
        SystemCall.MUNMAP.call(around, 2 * largest);
        return size > largest ? 0 : size;
    }

    /// Why a pool does not have these pages now.
    String lack(long pageSize, long wanted) {
        Path pool = pool(pageSize);
        long total = number(pool.resolve("nr_hugepages"), -1);
        if (total < 0) {
            return "pool of " + Bytes.text(pageSize) + " pages: " + wanted + " wanted, the number available is unknown, because "
                    + pool + " cannot be read";
        }
        long available = Math.max(0, number(pool.resolve("free_hugepages"), 0) - number(pool.resolve("resv_hugepages"), 0));
        String size = Bytes.text(pageSize);
        String has = "pool of " + size + " pages: " + wanted + " wanted, " + available + " available of " + total;
        return wanted > available
                ? has + "; 'sudo hugewise apply --pool " + size + "=+" + (wanted - available) + "' adds them"
                : has + "; the control group limits reservations to fewer pages, or another process reserved them";
    }

    private Path pool(long pageSize) {
        return root.resolve("sys/kernel/mm/hugepages/hugepages-" + (pageSize >> 10) + "kB");
    }

    /// Page faults of the machine that failed to get a transparent huge page; -1 if unknown.
    long thpFallbacks() {
        return field("proc/vmstat", "thp_fault_fallback");
    }

    /// The number after a name at the beginning of a line; -1 if unknown.
    private long field(String file, String name) {
        try (var lines = Files.lines(root.resolve(file))) {
            return lines.map(line -> line.split("\\s+"))
                    .filter(words -> words[0].equals(name))
                    .mapToLong(words -> Long.parseLong(words[1]))
                    .findFirst()
                    .orElse(-1);
        } catch (IOException | RuntimeException _) {
            return -1;
        }
    }

    private static long number(Path file, long otherwise) {
        try {
            return Long.parseLong(Files.readString(file).strip());
        } catch (IOException | NumberFormatException _) {
            return otherwise;
        }
    }
}
