package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/// Programs that need options of the JVM, in processes of their own: [ExhaustedHeap] and [VirtualStress].
class StressTest {
    /// Of an exhausted heap with all kinds of use; each kind alone takes a tenth. 0: 1 s, with all kinds only.
    private static final int SECONDS = Integer.getInteger("hugewise.exhausted", 0);

    /// Of the end of a process, after its output.
    private static final int LIMIT_SECONDS = 60;

    private static void run(String expected, Class<?> program, List<String> options, Object... arguments) throws Exception {
        String path = System.getProperty("jdk.module.path", "") + File.pathSeparator + System.getProperty("java.class.path");
        List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "--enable-native-access=ALL-UNNAMED", "-cp", path));
        command.addAll(options);
        command.add(program.getName());
        Arrays.stream(arguments).map(Object::toString).forEach(command::add);
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertThat(process.waitFor(LIMIT_SECONDS, TimeUnit.SECONDS)).isTrue();
        assertThat(output).contains(expected);
    }

    private static void exhaust(int seconds, ExhaustedHeap.Kind... kinds) throws Exception {
        List<Object> arguments = new ArrayList<>(List.of(seconds));
        arguments.addAll(List.of(kinds));
        run("all as it should be", ExhaustedHeap.class, List.of("-Xmx64m", "-XX:+UseSerialGC"), arguments.toArray());
    }

    /// OutOfMemoryErrors under load.
    @Test
    void allIsAsItShouldBeAfterAnExhaustedHeap() throws Exception {
        exhaust(Math.max(1, SECONDS), ExhaustedHeap.Kind.values());
        for (ExhaustedHeap.Kind kind : ExhaustedHeap.Kind.values()) {
            if (SECONDS > 0) {
                exhaust(SECONDS / 10, kind);
            }
        }
    }

    @Test
    void virtualThreadsGoOnWhileFunctionsStall() throws Exception {
        run("all threads went on", VirtualStress.class,
                List.of("-Djdk.virtualThreadScheduler.parallelism=2", "-Djdk.virtualThreadScheduler.maxPoolSize=2"), Math.max(1, SECONDS / 5));
    }
}
