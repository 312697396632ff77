package io.hugewise.jmh;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/// Transparent huge pages allocated and failed, counted by the kernel for the whole machine.
final class ThpCounters {
    private static final String SIZES = "sys/kernel/mm/transparent_hugepage";

    private final Map<String, Long> counts;

    private ThpCounters(Map<String, Long> counts) {
        this.counts = counts;
    }

    /// @param root directory that contains `proc` and `sys`: `/`
    static ThpCounters read(Path root) {
        Map<String, Long> counts = new TreeMap<>();
        try (Stream<String> lines = Files.lines(root.resolve("proc/vmstat"))) {
            lines.filter(line -> line.startsWith("thp_fault_alloc ") || line.startsWith("thp_fault_fallback "))
                    .forEach(line -> put(counts, line.substring(0, line.indexOf(' ')), line.substring(line.indexOf(' '))));
        } catch (IOException | UncheckedIOException error) {
            // A missing counter has no line in the result.
        }
        for (Path size : sizes(root)) {
            for (String what : new String[] {"anon_fault_alloc", "anon_fault_fallback"}) {
                try {
                    String name = size.getFileName().toString().replaceFirst("^hugepages-", "") + "." + what;
                    put(counts, name, Files.readString(size.resolve("stats").resolve(what)));
                } catch (IOException error) {
                    // Kernels before 6.8 do not count by size.
                }
            }
        }
        return new ThpCounters(counts);
    }

    private static List<Path> sizes(Path root) {
        try (Stream<Path> entries = Files.list(root.resolve(SIZES))) {
            return entries.filter(entry -> entry.getFileName().toString().startsWith("hugepages-"))
                    .collect(Collectors.toList());
        } catch (IOException error) {
            return List.of();
        }
    }

    private static void put(Map<String, Long> counts, String name, String number) {
        try {
            counts.put(name, Long.parseLong(number.trim()));
        } catch (NumberFormatException error) {
            // Not a count.
        }
    }

    /// Differences to an earlier reading. Counters of single page sizes are omitted if the difference is 0.
    Map<String, Long> since(ThpCounters earlier) {
        Map<String, Long> since = new TreeMap<>();
        counts.forEach((name, count) -> {
            Long before = earlier.counts.get(name);
            if (before != null && (count - before != 0 || name.startsWith("thp_"))) {
                since.put(name, count - before);
            }
        });
        return since;
    }
}
