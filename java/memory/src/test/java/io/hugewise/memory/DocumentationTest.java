package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.hugewise.memory.Machine.Ran;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class DocumentationTest {
    private static final Path PAGE = Path.of("../../docs/java.md");

    @BeforeEach
    void thePageIsHere() {
        assumeTrue(Files.exists(PAGE), "no docs/java.md here");
    }

    /// The examples after a text of the page.
    private static List<String> examples(String start) throws IOException {
        String text = Files.readString(PAGE).split(start, 2)[1];
        return Stream.of(text.split("```java\n")).skip(1).map(rest -> rest.split("```\n")[0]).toList();
    }

    private static String withoutIndentation(String text) {
        return text.lines().map(String::strip).collect(Collectors.joining("\n"));
    }

    @Test
    @Tag("pools")
    void theExampleOfThePageRuns(@TempDir Path folder) throws IOException {
        Path source = Files.writeString(folder.resolve("Cache.java"), examples("## Example").getFirst());
        Ran ran = Machine.java("--enable-native-access=ALL-UNNAMED", source.toString());
        assertThat(ran.status()).as(ran.output()).isZero();
        assertThat(ran.output().lines()).as(ran.output()).hasSize(2);
        assertThat(ran.output().lines().toList().getFirst()).matches("(hugetlb|thp|base).*");
        assertThat(ran.output().lines().toList().getLast()).containsPattern("% huge \\(.* on pages of ");
    }

    /// They need other libraries: the tests of their modules contain and run them.
    @Test
    void theExamplesOfTheOtherModulesAreTested() throws IOException {
        List<String> examples = examples("## Flight Recorder and Micrometer");
        List<Path> tests;
        try (Stream<Path> files = Files.find(Path.of(".."), 10, (file, _) -> file.toString().endsWith("Test.java"))) {
            tests = files.toList();
        }
        StringBuilder code = new StringBuilder();
        for (Path test : tests) {
            code.append(withoutIndentation(Files.readString(test)));
        }
        assertThat(examples).isNotEmpty().allSatisfy(example -> assertThat(code.toString()).contains(withoutIndentation(example)));
    }
}
