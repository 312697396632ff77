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

/// OutOfMemoryErrors of the heap under load, in processes of their own: [ExhaustedHeap].
class ExhaustedHeapTest {
    /// Of the program with all kinds; each kind alone takes a tenth. 0: 2 s with all kinds.
    private static final int SECONDS = Integer.getInteger("hugewise.exhausted", 0);

    /// Of the end of a process, after its output.
    private static final int LIMIT_SECONDS = 60;

    private static void run(int seconds, Object... kinds) throws Exception {
        String path = System.getProperty("jdk.module.path", "") + File.pathSeparator + System.getProperty("java.class.path");
        List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "--enable-native-access=ALL-UNNAMED",
                "-Xmx64m", "-XX:+UseSerialGC", "-cp", path, ExhaustedHeap.class.getName(), Integer.toString(seconds)));
        Arrays.stream(kinds).map(Object::toString).forEach(command::add);
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertThat(process.waitFor(LIMIT_SECONDS, TimeUnit.SECONDS)).isTrue();
        assertThat(output).contains("all as it should be");
    }

    @Test
    void allIsAsItShouldBeAfterwards() throws Exception {
        run(Math.max(2, SECONDS), (Object[]) ExhaustedHeap.Kind.values());
        for (ExhaustedHeap.Kind kind : ExhaustedHeap.Kind.values()) {
            if (SECONDS > 0) {
                run(Math.max(1, SECONDS / 10), kind);
            }
        }
    }
}
