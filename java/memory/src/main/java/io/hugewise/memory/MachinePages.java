package io.hugewise.memory;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;

/// The page sizes and pools of this machine, read from files of the kernel.
///
/// @param root `/`, or a folder with files like those of the kernel
record MachinePages(Path root) {
    private static final long COMMON_BASE = 4096;
    private static final long AT_PAGESZ = 6;

    static MachinePages current() {
        return new MachinePages(Path.of("/"));
    }

    /// Size of a base page in bytes.
    long base() {
        try {
            ByteBuffer vector = ByteBuffer.wrap(Files.readAllBytes(root.resolve("proc/self/auxv"))).order(ByteOrder.nativeOrder());
            while (vector.remaining() >= 2 * Long.BYTES) {
                long type = vector.getLong();
                long value = vector.getLong();
                if (type == AT_PAGESZ) {
                    return value;
                }
            }
        } catch (IOException _) {
            // Without /proc, the usual size.
        }
        return COMMON_BASE;
    }

    /// Size of a transparent huge page in bytes; 0 if the kernel has none.
    long thp() {
        return number(root.resolve("sys/kernel/mm/transparent_hugepage/hpage_pmd_size"), 0);
    }

    /// The default huge page size in bytes; 0 if the kernel has no pools.
    long hugetlb() {
        try (var lines = Files.lines(root.resolve("proc/meminfo"))) {
            return lines.filter(line -> line.startsWith("Hugepagesize:"))
                    .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")) << 10)
                    .findFirst()
                    .orElse(0);
        } catch (IOException _) {
            return 0;
        }
    }

    boolean hasPool(long pageSize) {
        return Files.isDirectory(pool(pageSize));
    }

    /// Why a pool does not have these pages now.
    String lack(long pageSize, long wanted) {
        Path pool = pool(pageSize);
        long total = number(pool.resolve("nr_hugepages"), 0);
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
        try (var lines = Files.lines(root.resolve("proc/vmstat"))) {
            return lines.filter(line -> line.startsWith("thp_fault_fallback "))
                    .mapToLong(line -> Long.parseLong(line.substring(line.indexOf(' ') + 1)))
                    .findFirst()
                    .orElse(-1);
        } catch (IOException _) {
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
