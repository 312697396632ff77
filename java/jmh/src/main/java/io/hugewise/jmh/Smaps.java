package io.hugewise.jmh;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/// What `/proc/PID/smaps` says of a process: how much is resident, and how much of it on huge pages.
///
/// Huge are pages of a pool, and transparent ones of the size that a page-table directory maps (2 MiB on
/// x86_64): smaps does not tell of smaller ones.
final class Smaps {
    /// All mappings together.
    final Share memory;
    /// Those that lie in the heap.
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

        /// The share of the resident bytes on huge pages, in percent; not a number where nothing is resident.
        double percent() {
            return resident == 0 ? Double.NaN : 100.0 * huge / resident;
        }

        private void add(long resident, long huge) {
            this.resident += resident;
            this.huge += huge;
        }
    }

    static Smaps read(Path file, Heap heap) throws IOException {
        // A name of a mapping is any bytes.
        try (BufferedReader lines = Files.newBufferedReader(file, StandardCharsets.ISO_8859_1)) {
            return parse(lines, heap);
        }
    }

    private static Smaps parse(BufferedReader lines, Heap heap) throws IOException {
        Share memory = new Share();
        Share inHeap = new Share();
        boolean isHeap = false;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            // A field's name ends in a colon; a mapping begins with its addresses.
            int colon = line.indexOf(':');
            int blank = line.indexOf(' ');
            if (colon < 0 || blank < colon) {
                isHeap = heap.holds(line);
                continue;
            }
            // Pages of a pool do not count as resident for the kernel.
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
            throw new IOException("smaps has a line that is not understood: " + line, error);
        }
    }
}
