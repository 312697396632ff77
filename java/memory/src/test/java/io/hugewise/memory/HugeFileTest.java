package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.hugewise.memory.Machine.Pool;
import java.io.BufferedReader;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/// Files on the machine's own tmpfs, and on file systems that the tests mount (with root).
class HugeFileTest {
    private static final long MIB = 1 << 20;
    private static final String FORMAT = "rows 3";

    @RegisterExtension
    private final SharedMemoryFolder folder = new SharedMemoryFolder();

    /// Writes a file, says so, and waits to be killed.
    static final class Writer {
        public static void main(String[] arguments) throws Exception {
            HugeFile file = HugeFile.create(Path.of(arguments[0]), 5 * MIB, FORMAT);
            for (long at = 0; at < 5 * MIB; at += 8) {
                file.memory().set(JAVA_LONG, at, ~at);
            }
            System.out.println("written");
            Thread.sleep(600_000);
        }
    }

    private static void isReadAfterAKill(Path path) throws Exception {
        Process writer = new ProcessBuilder(Machine.javaCommand(
                        "--enable-native-access=ALL-UNNAMED", Writer.class.getName(), path.toString()))
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        try (BufferedReader said = writer.inputReader()) {
            assertThat(said.readLine()).isEqualTo("written");
            assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).hasMessageContaining("it is open already");
        } finally {
            writer.destroyForcibly().waitFor();
        }
        try (HugeFile file = HugeFile.open(path, FORMAT)) {
            assertThat(file.memory().byteSize()).isEqualTo(5 * MIB);
            for (long at = 0; at < 5 * MIB; at += 8) {
                assertThat(file.memory().get(JAVA_LONG, at)).isEqualTo(~at);
            }
            assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).hasMessageContaining("it is open already");
        }
        assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(path))).isEqualTo("rw-------");
        Files.delete(path);
    }

    @Test
    void theNextProcessReadsWhatAKilledOneWrote() throws Exception {
        isReadAfterAKill(folder.resolve("rows"));
    }

    @Test
    void onTmpfsWithHugePagesItLiesOnThem() throws Exception {
        try (Mount _ = new Mount("tmpfs", "huge=advise,size=32m", folder.path)) {
            isReadAfterAKill(folder.resolve("rows"));
            try (HugeFile file = HugeFile.create(folder.resolve("new"), 8 * MIB, FORMAT)) {
                assertThat(file.memory().address() % Machine.PAGE).isZero();
                var known = (Coverage.Known) file.coverage();
                // Without free huge pages, the kernel uses base pages, and the coverage says so.
                assertThat(known.on(Machine.PAGE) % Machine.PAGE).isZero();
                assertThat(known.resident()).isEqualTo(10 * MIB);
            }
            assertThatThrownBy(() -> HugeFile.create(folder.resolve("large"), 64 * MIB, FORMAT))
                    .isInstanceOf(HugeMemoryException.class);
            assertThat(folder.resolve("large")).doesNotExist();
        }
    }

    @Test
    @Tag("pools")
    void onHugetlbfsItLiesOnPagesOfThePool() throws Exception {
        assumeTrue(Machine.mayChangePools(), "needs root, and a pool of 2 MiB pages");
        try (Pool _ = new Pool(6);
                Mount _ = new Mount("hugetlbfs", "pagesize=2M", folder.path)) {
            isReadAfterAKill(folder.resolve("rows"));
            try (HugeFile file = HugeFile.create(folder.resolve("new"), 8 * MIB, FORMAT)) {
                var known = (Coverage.Known) file.coverage();
                // With the page of the header.
                assertThat(known.on(Machine.PAGE)).isEqualTo(10 * MIB);
            }
            assertThatThrownBy(() -> HugeFile.create(folder.resolve("large"), 1L << 40, FORMAT))
                    .isInstanceOf(HugeMemoryException.class)
                    .hasMessageContaining("hugewise apply --pool 2MiB=+");
            assertThat(folder.resolve("large")).doesNotExist();
            Files.delete(folder.resolve("new"));
        }
    }

    @Test
    void whatItDoesNotKnowIsRefused() throws Exception {
        Path path = folder.resolve("rows");
        HugeFile.create(path, 3 * MIB, FORMAT).close();
        assertThatThrownBy(() -> HugeFile.create(path, MIB, FORMAT)).isInstanceOf(FileAlreadyExistsException.class);
        assertThatThrownBy(() -> HugeFile.open(path, "rows 4"))
                .isInstanceOf(HugeMemoryException.class)
                .hasMessageContaining("its format is 'rows 3', and 'rows 4' is expected");
        HugeFile.open(path, FORMAT).close();

        byte[] whole = Files.readAllBytes(path);
        int header = whole.length - FileHeader.BYTES;
        changed(path, whole, header + 8, 1, "its header has version 1, and this library knows 2");
        changed(path, whole, header + 16, 1, "its header is damaged");
        changed(path, whole, header + 30, 'X', "its header is damaged");
        changed(path, whole, header, 'X', "it has no header");
        Files.write(path, whole);
        HugeFile.open(path, FORMAT).close();
        for (long size : new long[] {0, 1000, MIB, whole.length - 1}) {
            Files.write(path, whole);
            try (FileChannel file = FileChannel.open(path, StandardOpenOption.WRITE)) {
                file.truncate(size);
            }
            assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).as("%d bytes", size).isInstanceOf(HugeMemoryException.class);
        }
        // A longer file with its header at the end.
        byte[] longer = new byte[whole.length + (4 << 20)];
        System.arraycopy(whole, header, longer, longer.length - FileHeader.BYTES, FileHeader.BYTES);
        Files.write(path, longer);
        assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).hasMessageContaining("its size was changed");
        Files.write(path, new byte[8192]);
        assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).hasMessageContaining("it has no header");
    }

    private static void changed(Path path, byte[] whole, int at, int to, String why) throws IOException {
        byte[] other = whole.clone();
        other[at] = (byte) to;
        Files.write(path, other);
        assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).isInstanceOf(HugeMemoryException.class).hasMessageContaining(why);
    }

    /// A page that is missing and cannot be added would be an error of the JVM at its first use.
    @Test
    void aHoleInAFileOnAFullFileSystemIsAnException() throws Exception {
        try (Mount _ = new Mount("tmpfs", "size=4m", folder.path)) {
            Path path = folder.resolve("rows");
            HugeFile.create(path, 2 * MIB, FORMAT).close();
            assumeTrue(Machine.works("fallocate", "--punch-hole", "--offset", "8192", "--length", "1MiB", path.toString()), "needs fallocate");
            HugeFile.open(path, FORMAT).close();
            assertThat(Machine.works("fallocate", "--punch-hole", "--offset", "8192", "--length", "1MiB", path.toString())).isTrue();
            assertThatThrownBy(() -> Files.write(folder.resolve("rest"), new byte[8 << 20])).isInstanceOf(IOException.class);
            assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).isInstanceOf(HugeMemoryException.class).hasMessageContaining("its file system is full");
            Files.delete(folder.resolve("rest"));
            try (HugeFile file = HugeFile.open(path, FORMAT)) {
                assertThat(file.memory().get(JAVA_BYTE, 8192)).isZero();
            }
        }
    }

    @Test
    void filesOfOthersAndLinksAreRefused() throws Exception {
        Path path = folder.resolve("rows");
        HugeFile.create(path, MIB, FORMAT).close();
        Path link = Files.createSymbolicLink(folder.resolve("link"), path);
        assertThatThrownBy(() -> HugeFile.open(link, FORMAT)).isInstanceOf(IOException.class).hasMessageContaining("mode 0600");
        Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-r--r--"));
        assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).isInstanceOf(IOException.class).hasMessageContaining("mode 0600");
        Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-------"));
        if ((Integer) Files.getAttribute(path, "unix:uid") == 0) {
            Files.setAttribute(path, "unix:uid", 65534);
            assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).hasMessageContaining("belongs to user 65534");
        }
        assertThatThrownBy(() -> HugeFile.create(Path.of("target", "rows"), MIB, FORMAT)).hasMessageContaining("hugetlbfs or tmpfs");
        assertThatThrownBy(() -> HugeFile.create(folder.resolve("x"), 0, FORMAT)).isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> HugeFile.create(folder.resolve("x"), MIB, "x".repeat(64))).isInstanceOf(IllegalArgumentException.class);
    }

    @Test
    void anAttemptToOpenAFileTwiceDoesNotUnlockIt() throws Exception {
        Path path = folder.resolve("rows");
        try (HugeFile _ = HugeFile.create(path, MIB, FORMAT)) {
            assertThat(isLocked(path)).isTrue();
            assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).hasMessageContaining("it is open already");
            assertThat(isLocked(path)).isTrue();
        }
        assertThat(isLocked(path)).isFalse();
        try (HugeFile _ = HugeFile.open(path, FORMAT)) {
            assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).hasMessageContaining("it is open already");
            assertThat(isLocked(path)).isTrue();
        }
    }

    /// Whether the kernel knows a lock of a file, which another process would see.
    private static boolean isLocked(Path path) throws IOException {
        String inode = ":" + Files.getAttribute(path, "unix:ino") + " ";
        return Files.readAllLines(Path.of("/proc/locks")).stream().anyMatch(line -> line.contains(inode));
    }

    @Test
    void useAfterCloseIsAnException() throws Exception {
        HugeFile file = HugeFile.create(folder.resolve("rows"), MIB, FORMAT);
        MemorySegment memory = file.memory();
        file.close();
        for (Runnable use : List.<Runnable>of(() -> memory.get(JAVA_BYTE, 0), file::coverage)) {
            assertThatThrownBy(use::run).isInstanceOf(IllegalStateException.class);
        }
    }

    /// A file system that is mounted until it is closed; the test is skipped where it cannot be.
    private record Mount(Path folder) implements AutoCloseable {
        Mount(String type, String options, Path folder) {
            this(folder);
            assumeTrue(Machine.works("mount", "-t", type, "-o", options, "hugewise-test", folder.toString()),
                    "needs root, and " + type + " with " + options);
        }

        @Override
        public void close() {
            assertThat(Machine.run(List.of("umount", folder.toString())).output()).isEmpty();
        }
    }
}
