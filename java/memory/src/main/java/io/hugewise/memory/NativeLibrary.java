package io.hugewise.memory;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/// Loads `libhugewise` from `-Dhugewise.library`, or else from the jar.
final class NativeLibrary {
    /// Path of a library to load instead of the jar's.
    static final String PROPERTY = "hugewise.library";
    /// `HUGEWISE_ABI_VERSION` that the bindings implement.
    static final int ABI_VERSION = 1;

    private static final String FILE = "libhugewise.so";

    private NativeLibrary() {}

    /// Loads the library and returns its functions.
    ///
    /// @throws NativeLibraryException if it cannot be loaded, or has another version
    static SymbolLookup load(Platform platform) {
        checkAccess(NativeLibrary.class.getModule());
        String named = System.getProperty(PROPERTY);
        if (named == null) {
            loadFromJar(platform);
        } else {
            loadFrom(Path.of(named).toAbsolutePath(), "-D" + PROPERTY + "=" + named);
        }
        SymbolLookup functions = SymbolLookup.loaderLookup();
        checkVersion(functions, named == null ? "the library in the jar" : named);
        return functions;
    }

    private static void checkAccess(Module module) {
        if (!module.isNativeAccessEnabled()) {
            String who = module.isNamed() ? module.getName() : "ALL-UNNAMED";
            throw new NativeLibraryException("this JVM does not allow native access: start it with --enable-native-access="
                    + who + ", or put 'Enable-Native-Access: " + who + "' into the manifest of the jar that java -jar starts");
        }
    }

    private static void loadFromJar(Platform platform) {
        String folder = platform.folder().orElseThrow(() -> new NativeLibraryException(unsupported(platform)));
        byte[] library = inJar("/META-INF/native/" + folder + "/" + FILE);
        if (library == null) {
            throw new NativeLibraryException("this build of the jar has no libhugewise for " + folder
                    + ": build it there, or name one with -D" + PROPERTY + "=PATH");
        }
        Path temporary = Path.of(System.getProperty("java.io.tmpdir"));
        // A loaded library does not need its file: deleting it now leaves nothing behind if the JVM is killed.
        try (PrivateFolder folderOfOurs = PrivateFolder.in(temporary, user())) {
            loadFrom(folderOfOurs.write(FILE, library), "the library in the jar, unpacked to " + temporary);
        } catch (IOException error) {
            throw new NativeLibraryException("libhugewise could not be unpacked to " + temporary + " (" + error
                    + "): name a folder that only you can write to with -Djava.io.tmpdir=FOLDER, or the library with -D"
                    + PROPERTY + "=PATH", error);
        }
    }

    static String unsupported(Platform platform) {
        return "libhugewise is for Linux on x86_64 and aarch64, and this is " + platform;
    }

    private static byte @Nullable [] inJar(String name) {
        try (InputStream in = NativeLibrary.class.getResourceAsStream(name)) {
            return in == null ? null : in.readAllBytes();
        } catch (IOException error) {
            throw new NativeLibraryException("libhugewise could not be read from the jar: " + error, error);
        }
    }

    private static void loadFrom(Path path, String origin) {
        if (!Files.isRegularFile(path)) {
            throw new NativeLibraryException(origin + ": there is no such file");
        }
        try {
            System.load(path.toString());
        } catch (UnsatisfiedLinkError error) {
            throw new NativeLibraryException(origin + " could not be loaded (" + error.getMessage()
                    + "): it needs glibc 2.28 or later and libgcc_s.so.1, and a folder that is not mounted noexec"
                    + " (-Djava.io.tmpdir=FOLDER names another); -D" + PROPERTY + "=PATH names another library", error);
        }
    }

    private static void checkVersion(SymbolLookup functions, String origin) {
        var address = functions.find("hugewise_abi_version")
                .orElseThrow(() -> new NativeLibraryException(origin + " is not libhugewise: it has no hugewise_abi_version"));
        int version = call(Linker.nativeLinker(), address);
        if (version != ABI_VERSION) {
            throw new NativeLibraryException(origin + " has version " + version + " of its interface, and this jar needs "
                    + ABI_VERSION + ": use a libhugewise and a jar of the same release");
        }
    }

    private static int user() {
        Linker linker = Linker.nativeLinker();
        return call(linker, linker.defaultLookup().findOrThrow("geteuid"));
    }

    private static int call(Linker linker, MemorySegment function) {
        try {
            return (int) linker.downcallHandle(function, FunctionDescriptor.of(ValueLayout.JAVA_INT)).invokeExact();
        } catch (Throwable error) {
            throw new AssertionError("a function that takes nothing and throws nothing", error);
        }
    }
}
