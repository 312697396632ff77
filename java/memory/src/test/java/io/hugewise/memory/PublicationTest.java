package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

class PublicationTest {
    private static final Path ROOT = Path.of("../..");
    private static final Path PACKAGED = Path.of("target/classes/META-INF");

    /// The first group of each match.
    private static List<String> matches(String pattern, String text) {
        return Pattern.compile(pattern).matcher(text).results().map(match -> match.group(1)).toList();
    }

    @Test
    void allFilesNameTheSameVersion() throws IOException {
        String version = matches("\n  <version>(.*)</version>", Files.readString(ROOT.resolve("java/pom.xml"))).getFirst();
        assertThat(version).matches("\\d+\\.\\d+\\.\\d+(-SNAPSHOT)?");
        String workspace = Files.readString(ROOT.resolve("Cargo.toml"));
        assertThat(matches("\nversion = \"(.*)\"", workspace)).containsExactly(version.replace("-SNAPSHOT", ""));
        for (String page : List.of("docs/java.md", "docs/jmh.md")) {
            String text = Files.readString(ROOT.resolve(page));
            assertThat(matches("<version>(.*)</version>", text)).as(page).containsExactly(version);
            assertThat(matches("hugewise-[a-z]+-(\\d[^ ]*)\\.jar", text)).as(page).containsOnly(version);
        }
    }

    @Test
    void theJarContainsTheLicenceAndTheNotice() throws IOException {
        for (String name : List.of("LICENSE", "NOTICE")) {
            assertThat(PACKAGED.resolve(name)).hasSameTextualContentAs(ROOT.resolve(name));
        }
    }

    @Test
    void theJarContainsTheLicencesOfTheLibrary() throws IOException {
        Path licences = PACKAGED.resolve("native/licences.txt");
        assumeTrue(Platform.current().folder().isPresent(), "no libhugewise for this machine");
        List<String> licensed = matches("\n([a-z0-9_-]+)-\\d\\S*: \\S", Files.readString(licences));
        for (String crate : List.of("linux", "memory", "memory-c")) {
            String manifest = Files.readString(ROOT.resolve("crates/" + crate + "/Cargo.toml"));
            String dependencies = manifest.split("\n\\[dependencies]")[1].split("\n\\[")[0];
            List<String> names = matches("\n([a-z0-9_-]+)\\.workspace = true", dependencies);
            assertThat(names).as(crate).isNotEmpty().allMatch(name -> name.startsWith("hugewise-") || licensed.contains(name));
        }
    }
}
