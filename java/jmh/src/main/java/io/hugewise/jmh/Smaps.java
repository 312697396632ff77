package io.hugewise.jmh;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/// Resident memory of a process and its share on huge pages, from `/proc/PID/smaps`.
///
/// Huge pages are pages of a pool and transparent huge pages of PMD size (2 MiB on x86_64): smaps does not
/// report smaller ones.
final class Smaps {
    /// All mappings.
    final Share memory;
    /// Mappings that overlap the heap.
    final Share heap;

    private Smaps(Share memory, Share heap) {
        this.memory = memory;
        this.heap = heap;
    }

    /// A sum over mappings, in KiB.
    static final class Share {
        private long resident;
        private long huge;

        long resident() {
            return resident;
        }

        /// Share of the resident bytes on huge pages, in percent; NaN if nothing is resident.
        double percent() {
            return resident == 0 ? Double.NaN : 100.0 * huge / resident;
        }

        private void add(long resident, long huge) {
            this.resident += resident;
            this.huge += huge;
        }
    }

    static Smaps read(Path file, Heap heap) throws IOException {
        // Names of mappings may contain any bytes.
        try (BufferedReader lines = Files.newBufferedReader(file, StandardCharsets.ISO_8859_1)) {
            return parse(lines, heap);
        }
    }

    private static Smaps parse(BufferedReader lines, Heap heap) throws IOException {
        Share memory = new Share();
        Share inHeap = new Share();
        boolean isHeap = false;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            // A field's name ends in a colon; a mapping starts with its addresses.
            int colon = line.indexOf(':');
            int blank = line.indexOf(' ');
            if (colon < 0 || blank < colon) {
                isHeap = heap.holds(line);
                continue;
            }
            // The kernel's Rss does not include pages of a pool.
            boolean ofPool = line.startsWith("Private_Hugetlb:") || line.startsWith("Shared_Hugetlb:");
            boolean huge = line.startsWith("AnonHugePages:")
                    || line.startsWith("ShmemPmdMapped:")
                    || line.startsWith("FilePmdMapped:");
            if (ofPool || huge || line.startsWith("Rss:")) {
                long kib = kib(line, colon);
                memory.add(huge ? 0 : kib, huge || ofPool ? kib : 0);
                if (isHeap) {
                    inHeap.add(huge ? 0 : kib, huge || ofPool ? kib : 0);
                }
            }
        }
        return new Smaps(memory, inHeap);
    }

    private static long kib(String line, int colon) throws IOException {
        String value = line.substring(colon + 1).trim();
        try {
            return Long.parseLong(value.substring(0, Math.max(0, value.indexOf(' '))));
        } catch (NumberFormatException error) {
            throw new IOException("cannot parse a line of smaps: " + line, error);
        }
    }
}
