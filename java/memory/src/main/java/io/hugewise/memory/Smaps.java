package io.hugewise.memory;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;

/// Coverage from `/proc/self/smaps`, which has sums of whole mappings only.
final class Smaps {
    private Smaps() {}

    /// Reads the coverage of all base pages that hold one of a segment's bytes.
    static Coverage coverage(MemorySegment segment) {
        MachinePages pages = MachinePages.current();
        long base = pages.base();
        long end = segment.address() + segment.byteSize() + base - 1 & -base;
        return coverage(Path.of("/proc/self/smaps"), segment.address() & -base, end, base, pages.thp());
    }

    /// Reads the coverage of addresses.
    ///
    /// @param file `/proc/self/smaps`
    /// @param thpSize size of transparent huge pages in bytes; 0 if there are none
    static Coverage coverage(Path file, long start, long end, long pageSize, long thpSize) {
        var onPages = new TreeMap<Long, Long>();
        onPages.put(pageSize, 0L);
        boolean isMapped = false;
        try (var lines = Files.lines(file)) {
            boolean isInside = false;
            long kernelPage = pageSize;
            for (String line : (Iterable<String>) lines::iterator) {
                String[] words = line.split("\\s+", 3);
                if (!words[0].endsWith(":")) {
                    int dash = words[0].indexOf('-');
                    long from = Long.parseUnsignedLong(words[0].substring(0, dash), 16);
                    long to = Long.parseUnsignedLong(words[0].substring(dash + 1), 16);
                    isInside = from < end && to > start;
                    isMapped |= isInside;
                    if (isInside && (from < start || to > end)) {
                        return new Coverage.Unknown(end - start,
                                "the memory is a part of a mapping, which smaps does not divide; libhugewise could read it");
                    }
                } else if (isInside) {
                    switch (words[0]) {
                        case "KernelPageSize:" -> kernelPage = kib(words[1]);
                        case "Rss:" -> onPages.merge(pageSize, kib(words[1]), Long::sum);
                        case "AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:" -> {
                            onPages.merge(pageSize, -kib(words[1]), Long::sum);
                            onPages.merge(Math.max(thpSize, pageSize), kib(words[1]), Long::sum);
                        }
                        case "Private_Hugetlb:", "Shared_Hugetlb:" -> onPages.merge(kernelPage, kib(words[1]), Long::sum);
                        default -> {}
                    }
                }
            }
        } catch (IOException | RuntimeException error) {
            return new Coverage.Unknown(end - start, file + " could not be read: " + error);
        }
        if (!isMapped) {
            return new Coverage.Unknown(end - start, "nothing is mapped there");
        }
        List<Coverage.PageBytes> pages = new ArrayList<>();
        onPages.forEach((size, bytes) -> {
            if (size == pageSize || bytes != 0) {
                pages.add(new Coverage.PageBytes(size, bytes));
            }
        });
        return new Coverage.Known(end - start, pages);
    }

    private static long kib(String number) {
        return Long.parseLong(number) << 10;
    }
}
