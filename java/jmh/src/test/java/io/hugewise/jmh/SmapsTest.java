package io.hugewise.jmh;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SmapsTest {
    private static final String G1 = "garbage-first heap   total 1048576K, used 7722K [0x00000000c0000000, 0x0000000100000000)\n"
            + " Metaspace used 11164K [0x0000000000001000, 0x0000000000002000)\n";
    private static final String PARALLEL = " PSYoungGen total 18944K [0x00000000feb00000, 0x0000000100000000, 0x0000000100000000)\n"
            + "  eden space 16384K, 38% used [0x00000000feb00000,0x00000000ff12d178,0x00000000ffb00000)\n"
            + " ParOldGen total 44032K [0x00000000fc000000, 0x00000000feb00000, 0x00000000feb00000)\n";

    @TempDir
    Path folder;

    private Smaps parsed(String text, String info) throws IOException {
        return Smaps.read(Files.writeString(folder.resolve("smaps"), text), Heap.of(info));
    }

    private static String mapping(String line, long rss, long anonHuge, long ofPool) {
        return line + "\nSize: 1048576 kB\nRss: " + rss + " kB\nPss: 7 kB\nAnonHugePages: " + anonHuge
                + " kB\nShmemPmdMapped: 0 kB\nFilePmdMapped: 0 kB\nShared_Hugetlb: 0 kB\nPrivate_Hugetlb: " + ofPool
                + " kB\nTHPeligible: 1\nVmFlags: rd wr mr\n";
    }

    @Test
    void transparentAndPoolPagesAreHuge() throws IOException {
        Smaps smaps = parsed(
                mapping("c0000000-e0000000 rw-p 00000000 00:00 0 ", 1024, 512, 0)
                        + mapping("e0000000-100000000 rw-p 00000000 00:0f 77  /anon_hugepage (deleted)", 0, 0, 1024)
                        + mapping("7f0000000000-7f0040000000 r-xp 00000000 08:01 5  /lib/a: b c.so", 2048, 0, 0),
                G1);
        assertThat(smaps.heap.resident()).isEqualTo(2048);
        assertThat(smaps.heap.percent()).isEqualTo(75);
        assertThat(smaps.memory.resident()).isEqualTo(4096);
        assertThat(smaps.memory.percent()).isEqualTo(37.5);
    }

    @Test
    void aHeapOfSeveralGenerationsIsOne() {
        Heap heap = Heap.of(PARALLEL);
        assertThat(heap.holds("fc000000-fc100000 rw-p 0 00:00 0")).isTrue();
        assertThat(heap.holds("ffb00000-100000000 rw-p 0 00:00 0")).isTrue();
        assertThat(heap.holds("100000000-100100000 rw-p 0 00:00 0")).isFalse();
        assertThat(heap.holds("fbf00000-fc000000 rw-p 0 00:00 0")).isFalse();
    }

    @Test
    void aHeapWithoutAddressesHasAName() throws IOException {
        Smaps smaps = parsed(mapping("40000000000-40040000000 rw-s 00000000 00:01 9  /memfd:java_heap (deleted)", 64, 0, 0), "ZHeap used 10M");
        assertThat(smaps.heap.resident()).isEqualTo(64);
    }

    @Test
    void anAbsentHeapHasNoShare() throws IOException {
        assertThat(parsed("", G1).heap.percent()).isNaN();
    }

    @Test
    void anInvalidLineIsInTheError() {
        assertThatThrownBy(() -> parsed("c0000000-e0000000 rw-p 0 00:00 0\nRss: many kB\n", G1))
                .isInstanceOf(IOException.class)
                .hasMessageContaining("Rss: many kB");
    }

    @Test
    void theHeapOfThisJvmIsFound() throws IOException {
        Smaps smaps = Smaps.read(Path.of("/proc/self/smaps"), Heap.current());
        assertThat(smaps.heap.resident()).isPositive().isLessThan(smaps.memory.resident());
    }
}
