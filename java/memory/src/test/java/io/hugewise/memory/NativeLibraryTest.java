package io.hugewise.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.hugewise.memory.Machine.Ran;
import java.io.IOException;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.StructLayout;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class NativeLibraryTest {
    private static final String ALLOWED = "--enable-native-access=ALL-UNNAMED";

    /// Reserves an arena and prints it.
    static final class Reserves {
        public static void main(String[] arguments) {
            try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(1 << 20).only(Backing.base()))) {
                String library = Libhugewise.find().isPresent() ? "" : " without libhugewise: " + Libhugewise.whyAbsent();
                System.out.println("reserved " + arena + library);
            } catch (HugeMemoryException error) {
                System.out.println(error.getClass().getSimpleName() + ": " + error.getMessage());
            }
        }
    }

    private static String outputOf(String... arguments) {
        List<String> all = new ArrayList<>(List.of(arguments));
        all.add(Reserves.class.getName());
        Ran ran = Machine.java(all.toArray(String[]::new));
        assertThat(ran.status()).as(ran.output()).isZero();
        return ran.output();
    }

    @Test
    void theLibraryIsLoadedWithoutAFile(@TempDir Path folder) throws IOException {
        // One line: neither the library nor the JVM prints anything else.
        assertThat(outputOf(ALLOWED, "-Djava.io.tmpdir=" + folder)).isEqualTo("reserved arena of 1MiB\n");
        assertThat(outputOf(ALLOWED, "-Djava.io.tmpdir=" + folder.resolve("none"))).endsWith("\nreserved arena of 1MiB\n");
        try (var left = Files.list(folder)) {
            assertThat(left).isEmpty();
        }
    }

    @Test
    void whereNothingCanBeWrittenOrExecutedItIsLoaded(@TempDir Path folder) throws IOException {
        assumeTrue(Machine.works("unshare", "--mount", "true"), "needs root");
        // Everything is read-only, and the temporary folder is not for programs.
        String script = "mount -o remount,bind,ro / && mount -t tmpfs -o noexec,ro none \"$0\" && exec \"$@\"";
        List<String> command = new ArrayList<>(List.of("unshare", "--mount", "sh", "-c", script, folder.toString()));
        command.addAll(Machine.javaCommand(ALLOWED, "-Djava.io.tmpdir=" + folder, Reserves.class.getName()));
        Ran ran = Machine.run(command);
        assumeTrue(!ran.output().contains("mount:"), ran.output());
        assertThat(ran.output()).isEqualTo("reserved arena of 1MiB\n");
    }

    @Test
    void twoClassLoadersLoadIt() {
        assertThat(Machine.java(ALLOWED, TwoLoaders.class.getName()).output()).isEqualTo("reserved arena of 1MiB\n".repeat(2));
    }

    static final class TwoLoaders {
        public static void main(String[] arguments) throws Exception {
            for (int i = 0; i < 2; i++) {
                List<URL> classes = new ArrayList<>();
                for (String path : System.getProperty("java.class.path").split(":")) {
                    classes.add(Path.of(path).toUri().toURL());
                }
                try (var loader = new URLClassLoader(classes.toArray(URL[]::new), null)) {
                    Class<?> reserves = loader.loadClass(Reserves.class.getName());
                    var main = reserves.getDeclaredMethod("main", String[].class);
                    main.setAccessible(true);
                    main.invoke(null, (Object) new String[0]);
                }
            }
        }
    }

    @Test
    void nativeAccessIsNeededOnlyWhereItIsDenied() {
        // The JVM warns by itself.
        assertThat(outputOf()).endsWith("reserved arena of 1MiB\n");
        assertThat(outputOf("--illegal-native-access=deny"))
                .startsWith("NativeLibraryException: this JVM denies native access")
                .contains("--enable-native-access=ALL-UNNAMED");
        assertThat(outputOf("--illegal-native-access=deny", ALLOWED)).isEqualTo("reserved arena of 1MiB\n");
    }

    @Test
    void aLibraryCanBeSwitchedOff() {
        assertThat(outputOf(ALLOWED, "-Dhugewise.library=none")).contains("without libhugewise: it is switched off");
    }

    @Test
    void anotherLibraryCanBeNamed(@TempDir Path folder) throws IOException {
        Path library = folder.resolve("mine.so");
        String folderInJar = Platform.current().folder().orElseThrow();
        Files.copy(Path.of("target/classes/META-INF/native", folderInJar, "libhugewise.so"), library);
        assertThat(outputOf(ALLOWED, "-Dhugewise.library=" + library)).startsWith("reserved");
        assertThat(outputOf(ALLOWED, "-Dhugewise.library=" + folder.resolve("none.so"))).contains("there is no such file");
        Files.writeString(library, "no library");
        assertThat(outputOf(ALLOWED, "-Dhugewise.library=" + library)).contains("could not be loaded: ").contains("glibc 2.28");
    }

    @Test
    void aLibraryOfAnotherVersionIsRefused(@TempDir Path folder) throws IOException {
        assumeTrue(Machine.hasCompiler(), "no cc");
        for (String[] test : new String[][] {
            {"int hugewise_abi_version(void) { return 999; }", "has version 999 of its interface, and this jar needs 1"},
            {"int other(void) { return 1; }", "is not libhugewise"},
            {"int hugewise_abi_version(void) { return 1; }", "has no hugewise_last_error"}
        }) {
            Path source = Files.writeString(folder.resolve("other.c"), test[0]);
            Path library = folder.resolve("other.so");
            assertThat(Machine.run(List.of("cc", "-shared", "-fPIC", "-o", library.toString(), source.toString())).status()).isZero();
            assertThat(outputOf(ALLOWED, "-Dhugewise.library=" + library)).startsWith("NativeLibraryException: ").contains(test[1]);
        }
    }

    @Test
    void aDirectoryThatOthersCanWriteToIsRefused(@TempDir Path folder) throws IOException {
        int me = (Integer) Files.getAttribute(folder, "unix:uid");
        Path open = Files.createDirectory(folder.resolve("open"));
        Files.setPosixFilePermissions(open, PosixFilePermissions.fromString("rwxrwxrwx"));
        Path below = Files.createDirectory(open.resolve("below"));
        // A symbolic link is resolved before the check.
        Path link = Files.createSymbolicLink(folder.resolve("link"), below);
        for (Path temporary : List.of(open, below, link)) {
            assertThatThrownBy(() -> PrivateFolder.in(temporary, me).close())
                    .isInstanceOf(IOException.class)
                    .hasMessageContaining(open + " can be written by others");
        }
        Files.setPosixFilePermissions(open, PosixFilePermissions.fromString("rwx------"));
        try (PrivateFolder ours = PrivateFolder.in(link, me)) {
            assertThat(ours.write("a", new byte[] {1})).hasBinaryContent(new byte[] {1});
        }
        try (var left = Files.list(below)) {
            assertThat(left).isEmpty();
        }
    }

    @Test
    void aDirectoryOfAnotherUserIsRefused(@TempDir Path folder) throws IOException {
        int me = (Integer) Files.getAttribute(folder, "unix:uid");
        assumeTrue(me == 0, "needs root");
        Path of = Files.createDirectory(folder.resolve("theirs"));
        Files.setAttribute(of, "unix:uid", 12345);
        assertThatThrownBy(() -> PrivateFolder.in(of, me).close())
                .isInstanceOf(IOException.class)
                .hasMessageContaining("belongs to user 12345");
    }

    @Test
    void structsHaveTheLayoutOfC(@TempDir Path folder) throws IOException {
        Path c = Path.of("../../crates/memory-c");
        assumeTrue(Machine.hasCompiler() && Files.isDirectory(c), "no cc");
        Path program = folder.resolve("layout");
        Ran built = Machine.run(List.of("cc", "-I" + c.resolve("include"), "-o", program.toString(), c.resolve("tests/c/layout.c").toString()));
        assertThat(built.status()).as(built.output()).isZero();
        List<String> expected = new ArrayList<>();
        Map<String, StructLayout> structs = new LinkedHashMap<>();
        structs.put("hugewise_page_bytes", NativeRegion.PAGE_BYTES);
        structs.put("hugewise_reserve_options", NativeRegion.RESERVE_OPTIONS);
        structs.put("hugewise_pretouch_options", NativeRegion.PRETOUCH_OPTIONS);
        structs.put("hugewise_pretouched", NativeRegion.PRETOUCHED);
        structs.forEach((name, struct) -> {
            expected.add(name + " " + struct.byteSize());
            for (MemoryLayout field : struct.memberLayouts()) {
                String of = field.name().orElseThrow();
                expected.add(name + "." + of + " " + struct.byteOffset(PathElement.groupElement(of)) + " " + field.byteSize());
            }
        });
        assertThat(Machine.run(List.of(program.toString())).output().lines()).containsExactlyElementsOf(expected);
        String header = Files.readString(c.resolve("include/hugewise.h"));
        assertThat(header).contains("#define HUGEWISE_ABI_VERSION " + NativeLibrary.ABI_VERSION + "\n");
    }
}
