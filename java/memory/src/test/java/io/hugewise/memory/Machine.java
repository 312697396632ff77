package io.hugewise.memory;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

/// The tests' access to the machine: changes are restored. Tests that change a pool, or may take pages of one, have the
/// tag `pools`: they do not run beside tests of other programs that do so.
final class Machine {
    static final long PAGE = 2 << 20;
    static final Path POOL = Path.of("/sys/kernel/mm/hugepages/hugepages-2048kB");
    private static final Path STATE = Path.of("/run/hugewise");

    private Machine() {}

    /// Leaves a case out unless it represents the others, or this is a full run.
    static void representing(boolean represents) {
        assumeTrue(represents || isFullRun(), "left out");
    }

    /// Whether this is a full run: `HUGEWISE_FULL=1`.
    static boolean isFullRun() {
        return "1".equals(System.getenv("HUGEWISE_FULL"));
    }

    /// Whether this process can change the size of pools.
    static boolean mayChangePools() {
        return Files.isWritable(POOL.resolve("nr_hugepages")) && works("flock", "--version");
    }

    static boolean hasCompiler() {
        return works("cc", "--version");
    }

    static boolean works(String... command) {
        try {
            return run(List.of(command)).status == 0;
        } catch (UncheckedIOException _) {
            return false;
        }
    }

    record Ran(int status, String output) {}

    /// Runs a command; the output includes standard error.
    static Ran run(List<String> command) {
        try {
            Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
            process.getOutputStream().close();
            String output = new String(process.getInputStream().readAllBytes());
            return new Ran(process.waitFor(), output);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /// Runs the tests' JVM with these arguments and the library on its class path.
    static Ran java(String... arguments) {
        return run(javaCommand(arguments));
    }

    static List<String> javaCommand(String... arguments) {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String classes = Path.of("target", "classes").toAbsolutePath() + ":" + Path.of("target", "test-classes").toAbsolutePath();
        return Stream.concat(Stream.of(java, "-Xmx64m", "-cp", classes), Stream.of(arguments)).toList();
    }

    /// A pool of 2 MiB pages enlarged by this number of pages until it is closed. Holds the lock of `hugewise`
    /// during that time, as its own tests do. A separate process restores the old size, even if this one is
    /// killed.
    static final class Pool implements AutoCloseable {
        private final Process keeper;

        Pool(int pages) throws IOException {
            Files.createDirectories(STATE);
            String script = "test ! -e /run/hugewise/journal.json || exit 3; old=$(cat " + POOL + "/nr_hugepages); "
                    + "trap '' INT TERM; echo $((old + " + pages + ")) > " + POOL + "/nr_hugepages; "
                    + "echo changed; cat > /dev/null; echo $old > " + POOL + "/nr_hugepages";
            keeper = new ProcessBuilder("flock", "-w", "180", STATE.resolve("lock").toString(), "sh", "-c", script)
                    .redirectError(ProcessBuilder.Redirect.INHERIT)
                    .start();
            BufferedReader said = keeper.inputReader();
            if (said.readLine() == null) {
                throw new IOException("another hugewise is running, or was killed and its settings were not restored");
            }
        }

        static long free() {
            return number("free_hugepages") - number("resv_hugepages");
        }

        private static long number(String file) {
            try {
                return Long.parseLong(Files.readString(POOL.resolve(file)).strip());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public void close() throws IOException {
            keeper.getOutputStream().close();
            // The keeper ends when its input is closed; its output ends with it.
            keeper.getInputStream().readAllBytes();
            if (keeper.onExit().join().exitValue() != 0) {
                throw new IOException("the pool was not restored");
            }
        }
    }
}
