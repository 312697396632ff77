package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.hugewise.memory.Machine.Ran;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/// A JVM in each state that a process may get into after its start, with libhugewise and without it.
class ProcessStatesTest {
    /// Those that represent the others.
    private static final List<String> REPRESENTATIVES = List.of(
            "undumpable, early, library", "root, early, none", "descriptors, late, library", "threads, early, none",
            "denied 28 1, early, none", "denied 324 38, late, library");
    /// System calls of x86_64 that the library makes, itself or through the JVM, and without which the JVM goes on.
    private static final List<Integer> DENIED = List.of(
            3, 5, 11, 16, 28, 29, 30, 31, 56, 67, 98, 107, 157, 203, 217, 237, 239, 257, 262, 309, 318, 319, 324, 332, 334, 435);

    static Stream<String> states() {
        List<String> states = new ArrayList<>(List.of("user", "undumpable", "root", "descriptors", "threads"));
        if (Platform.current().machine().equals("amd64")) {
            DENIED.forEach(number -> Stream.of(1, 38).forEach(errno -> states.add("denied " + number + " " + errno)));
        }
        return states.stream().flatMap(state -> Stream.of("early", "late")
                .flatMap(moment -> Stream.of("library", "none").map(library -> state + ", " + moment + ", " + library)));
    }

    @ParameterizedTest
    @MethodSource("states")
    void memoryIsUsed(String state) {
        Machine.representing(REPRESENTATIVES.contains(state));
        List<String> words = List.of(state.split(", "));
        expectUsed(Machine.run(command(words.get(2), words.get(0), words.get(1))));
    }

    @ParameterizedTest
    @MethodSource("libraries")
    void memoryIsUsedWithoutFilesOfTheKernel(String library) {
        assumeTrue(Machine.works("unshare", "--mount", "true"), "needs root");
        // The launcher finds its libraries through /proc.
        String libraries = Path.of(System.getProperty("java.home"), "lib").toString();
        List<String> all = new ArrayList<>(List.of("unshare", "--mount", "sh", "-c",
                "mount -t tmpfs -o ro none /proc && mount -t tmpfs -o ro none /sys && export LD_LIBRARY_PATH=\"$0:$0/server\""
                        + " && exec \"$@\"", libraries));
        all.addAll(command(library, "none", "early"));
        expectUsed(Machine.run(all));
    }

    static Stream<String> libraries() {
        return Stream.of("library", "none");
    }

    @Test
    void memoryIsUsedAsItIs() {
        expectUsed(Machine.run(command("library", "none", "late")));
    }

    private static List<String> command(String library, String state, String moment) {
        List<String> options = new ArrayList<>(List.of("-XX:TieredStopAtLevel=1", "--enable-native-access=ALL-UNNAMED"));
        if (library.equals("none")) {
            options.add("-Dhugewise.library=none");
        }
        options.addAll(List.of(ProcessStates.class.getName(), state, moment));
        return Machine.javaCommand(options.toArray(String[]::new));
    }

    /// The JVM reports threads that it cannot start.
    private static void expectUsed(Ran ran) {
        assumeTrue(ran.status() != ProcessStates.SKIPPED, "this process cannot enter the state");
        assertThat(ran.output()).endsWith("used\n");
        assertThat(ran.status()).isZero();
    }
}
