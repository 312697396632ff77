package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.hugewise.memory.Machine.Ran;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class DocumentationTest {
    private static final Path PAGE = Path.of("../../docs/java.md");

    @Test
    void theExampleOfThePageRuns(@TempDir Path folder) throws IOException {
        assumeTrue(Files.exists(PAGE), "no docs/java.md here");
        String example = Files.readString(PAGE).split("```java\n")[1].split("```\n")[0];
        Path source = Files.writeString(folder.resolve("Cache.java"), example);
        Ran ran = Machine.java("--enable-native-access=ALL-UNNAMED", source.toString());
        assertThat(ran.status()).as(ran.output()).isZero();
        assertThat(ran.output().lines()).as(ran.output()).hasSize(2);
        assertThat(ran.output().lines().toList().getFirst()).matches("(hugetlb|thp|base).*");
        assertThat(ran.output().lines().toList().getLast()).containsPattern("% huge \\(.* on pages of ");
    }
}
