package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/// Readers of the kernel's files, on files as they are on other machines.
class KernelFilesTest {
    private static final String SMAPS = """
            7f0000000000-7f0000400000 rw-p 00000000 00:00 0                          [anon:hugewise rows]
            Size:               4096 kB
            KernelPageSize:        4 kB
            Rss:                3072 kB
            AnonHugePages:      2048 kB
            Private_Hugetlb:       0 kB
            VmFlags: rd wr
            7f0040000000-7f0080000000 rw-p 00000000 00:0f 999 /anon_hugepage (deleted)
            Size:            1048576 kB
            KernelPageSize:  1048576 kB
            Rss:                   0 kB
            AnonHugePages:         0 kB
            Shared_Hugetlb:        0 kB
            Private_Hugetlb: 1048576 kB
            """;

    @Test
    void smapsAreSummedUp(@TempDir Path folder) throws IOException {
        Path smaps = Files.writeString(folder.resolve("smaps"), SMAPS);
        assertThat(read(smaps, 0x7f0000000000L, 0x7f0000400000L))
                .hasToString("66.7 % huge (1MiB on pages of 4KiB, 2MiB on pages of 2MiB)");
        assertThat(read(smaps, 0x7f0040000000L, 0x7f0080000000L)).hasToString("100.0 % huge (1GiB on pages of 1GiB)");
        assertThat(read(smaps, 0x7f0000000000L, 0x7f0000200000L)).asString().contains("a part of a mapping");
        assertThat(read(smaps, 0x1000, 0x2000)).hasToString("unknown: nothing is mapped there");
        assertThat(read(folder.resolve("none"), 0, 1)).asString().contains("could not be read");
        Files.writeString(smaps, "x-y rw-p\n");
        assertThat(read(smaps, 0, 1)).asString().contains("could not be read");
    }

    private static Coverage read(Path smaps, long start, long end) {
        return Smaps.coverage(smaps, start, end, 4096, 2 << 20);
    }

    @Test
    void sizesAndPoolsAreReadOrUnknown(@TempDir Path root) throws IOException {
        MachinePages pages = new MachinePages(root);
        MachinePages here = MachinePages.current();
        // Without files the kernel is asked.
        assertThat(List.of(pages.base(), pages.thp(), pages.hugetlb(), pages.thpFallbacks()))
                .containsExactly(here.base(), here.thp(), here.hugetlb(), -1L);
        assertThat(pages.lack(2 << 20, 9)).contains("9 wanted, the number available is unknown");
        write(root, "sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
        write(root, "proc/meminfo", "MemTotal: 100 kB\nHugepagesize:       2048 kB\n");
        write(root, "proc/vmstat", "thp_fault_alloc 3\nthp_fault_fallback 17\nthp_fault_fallback_charge 1\n");
        assertThat(List.of(pages.thp(), pages.hugetlb(), pages.thpFallbacks())).containsExactly(2L << 20, 2L << 20, 17L);
        String pool = "sys/kernel/mm/hugepages/hugepages-2048kB/";
        write(root, pool + "nr_hugepages", "10\n");
        write(root, pool + "free_hugepages", "8\n");
        write(root, pool + "resv_hugepages", "3\n");
        assertThat(pages.lack(2 << 20, 9))
                .isEqualTo("pool of 2MiB pages: 9 wanted, 5 available of 10; 'sudo hugewise apply --pool 2MiB=+4' adds them");
        assertThat(pages.lack(2 << 20, 5)).contains("the control group limits reservations");
    }

    private static void write(Path root, String file, String text) throws IOException {
        Files.createDirectories(root.resolve(file).getParent());
        Files.writeString(root.resolve(file), text);
    }
}
