package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/// A file has one owner, whatever its owner does beside, and wherever another process runs.
class FileLockTest {
    private static final String FORMAT = "rows 3";

    @RegisterExtension
    private final SharedMemoryFolder folder = new SharedMemoryFolder();

    private Path path = Path.of("rows");

    @BeforeEach
    void path() {
        path = folder.resolve("rows");
    }

    /// Opens a file, says so, and waits to be killed.
    static final class Owner {
        public static void main(String[] arguments) throws Exception {
            Path file = Path.of(arguments[0]);
            try (HugeFile open = Files.exists(file) ? HugeFile.open(file, FORMAT) : HugeFile.create(file, 1 << 20, FORMAT)) {
                System.out.println("open");
                Thread.sleep(600_000);
                open.memory().set(JAVA_LONG, 0, 1);
            } catch (HugeMemoryException refused) {
                System.out.println(refused.getMessage());
            }
        }
    }

    /// Starts a process that opens the file, after some words of a command.
    private Process start(String... before) throws IOException {
        List<String> command = new ArrayList<>(List.of(before));
        command.addAll(Machine.javaCommand("--enable-native-access=ALL-UNNAMED", Owner.class.getName(), path.toString()));
        return new ProcessBuilder(command).redirectErrorStream(true).start();
    }

    private static String said(Process process) throws IOException {
        BufferedReader said = process.inputReader();
        return Objects.requireNonNull(said.readLine());
    }

    private static void end(Process process) {
        List<ProcessHandle> all = Stream.concat(process.descendants(), Stream.of(process.toHandle())).toList();
        all.forEach(ProcessHandle::destroyForcibly);
        all.forEach(one -> one.onExit().join());
    }

    private void isRefused(String owner) {
        assertThatThrownBy(() -> HugeFile.open(path, FORMAT)).isInstanceOf(HugeMemoryException.class).hasMessageContaining("it is open already" + owner);
        assertThatThrownBy(() -> HugeFile.delete(path, _ -> true)).isInstanceOf(HugeMemoryException.class).hasMessageContaining("it is open already" + owner);
        assertThat(path).exists();
    }

    @Test
    void readingTheFileOtherwiseDoesNotUnlockIt() throws Exception {
        try (HugeFile _ = HugeFile.create(path, 1 << 20, FORMAT)) {
            Files.readAllBytes(path);
            try (FileChannel other = FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                var lock = other.tryLock();
                lock.release();
            }
            Process other = start();
            try {
                assertThat(said(other)).contains("it is open already, by process " + ProcessHandle.current().pid());
            } finally {
                end(other);
            }
            isRefused(", by process " + ProcessHandle.current().pid());
        }
        HugeFile.open(path, FORMAT).close();
    }

    @Test
    void aStoppedProcessStaysTheOwner() throws Exception {
        Process owner = start();
        try {
            assertThat(said(owner)).isEqualTo("open");
            assertThat(Machine.works("kill", "-STOP", "" + owner.pid())).isTrue();
            isRefused(", by process " + owner.pid());
        } finally {
            end(owner);
        }
        HugeFile.open(path, FORMAT).close();
    }

    @Test
    void aKilledProcessIsTheOwnerUntilItsMemoryIsReleased() throws Exception {
        for (int round = 0; round < 3; round++) {
            Process owner = start();
            try {
                assertThat(said(owner)).isEqualTo("open");
                owner.destroyForcibly();
                // Either it is refused, or the lock has ended.
                try (HugeFile _ = HugeFile.open(path, FORMAT)) {
                    isRefused(", by process " + ProcessHandle.current().pid());
                } catch (HugeMemoryException refused) {
                    assertThat(refused).hasMessageContaining("it is open already, by process " + owner.pid());
                }
            } finally {
                end(owner);
            }
            HugeFile.open(path, FORMAT).close();
        }
    }

    @Test
    void aProcessOfAnotherContainerIsRefused() throws Exception {
        List<String> container = List.of("unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c",
                "mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /run && exec \"$@\"", "sh");
        List<String> probe = new ArrayList<>(container);
        probe.add("true");
        assumeTrue(Machine.works(probe.toArray(String[]::new)), "needs root, to make namespaces");
        try (HugeFile _ = HugeFile.create(path, 1 << 20, FORMAT)) {
            Process other = start(container.toArray(String[]::new));
            try {
                assertThat(said(other)).contains("it is open already, by process " + ProcessHandle.current().pid() + ", which ended just now or is of another PID namespace");
            } finally {
                end(other);
            }
        }
        Process owner = start(container.toArray(String[]::new));
        try {
            assertThat(said(owner)).isEqualTo("open");
            isRefused(", by process ");
        } finally {
            end(owner);
        }
        HugeFile.open(path, FORMAT).close();
    }

    @Test
    void anotherCopyOfTheLibraryInTheSameProcessIsRefused() throws Exception {
        List<URL> classes = new ArrayList<>();
        for (String name : new String[] {"classes", "test-classes"}) {
            classes.add(Path.of("target", name).toUri().toURL());
        }
        try (HugeFile _ = HugeFile.create(path, 1 << 20, FORMAT);
                var loader = new URLClassLoader(classes.toArray(URL[]::new), ClassLoader.getPlatformClassLoader())) {
            var open = loader.loadClass(HugeFile.class.getName()).getMethod("open", Path.class, String.class);
            assertThatThrownBy(() -> open.invoke(null, path, FORMAT)).isInstanceOf(InvocationTargetException.class)
                    .cause().hasMessageContaining("it is open already, by process");
        }
    }

    /// A program that inherits descriptors must not keep the file locked.
    @Test
    void aProgramThatTheOwnerStartsIsNoOwner() throws Exception {
        Process other;
        try (HugeFile _ = HugeFile.create(path, 1 << 20, FORMAT)) {
            other = new ProcessBuilder("sleep", "600").start();
        }
        try {
            HugeFile.open(path, FORMAT).close();
        } finally {
            end(other);
        }
    }
}
