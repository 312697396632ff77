package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/// Loads `libhugewise` from `-Dhugewise.library`, or else from the jar.
///
/// With `dlopen`, and not `System.load`: so every class loader can load it, also from a file without a path.
final class NativeLibrary {
    /// Path of a library to load instead of the jar's, or [#NONE].
    static final String PROPERTY = "hugewise.library";
    /// Value of [#PROPERTY] for memory without a library.
    static final String NONE = "none";
    /// `HUGEWISE_ABI_VERSION` that the bindings implement.
    static final int ABI_VERSION = 1;

    private static final String FILE = "libhugewise.so";
    private static final int RTLD_NOW = 2;
    private static final int MFD_CLOEXEC = 1;
    /// Linux 6.3; unknown before.
    private static final int MFD_EXEC = 0x10;

    private NativeLibrary() {}

    /// The functions of a library; or why it could not be loaded, and memory is reserved without it.
    ///
    /// @param isFinal whether the next attempt would have the same result
    record Loaded(@Nullable SymbolLookup functions, String why, boolean isFinal) {
        Loaded(@Nullable SymbolLookup functions, String why) {
            this(functions, why, true);
        }
    }

    /// Whether the user has named a library.
    static boolean isNamed() {
        String named = System.getProperty(PROPERTY);
        return named != null && !named.equals(NONE);
    }

    /// Loads the library.
    ///
    /// @throws NativeLibraryException if the library of [#PROPERTY] cannot be loaded, one has another version, or the
    ///     JVM denies native access
    static Loaded load(Platform platform) {
        checkAccess();
        String named = System.getProperty(PROPERTY);
        if (NONE.equals(named)) {
            return new Loaded(null, "it is switched off by -D" + PROPERTY + "=" + NONE);
        }
        return named == null ? loadFromJar(platform) : loadNamed(named);
    }

    /// @throws NativeLibraryException if the JVM denies native access
    static void checkAccess() {
        try {
            user();
        } catch (IllegalCallerException error) {
            Module module = NativeLibrary.class.getModule();
            String who = module.isNamed() ? module.getName() : "ALL-UNNAMED";
            throw new NativeLibraryException("this JVM denies native access: start it with --enable-native-access=" + who
                    + ", or put 'Enable-Native-Access: " + who + "' into the manifest of the jar that java -jar starts", error);
        }
    }

    private static Loaded loadNamed(String named) {
        String origin = "-D" + PROPERTY + "=" + named;
        Path path = Path.of(named).toAbsolutePath();
        if (!Files.isRegularFile(path)) {
            throw new NativeLibraryException(origin + ": there is no such file");
        }
        try {
            return checked(DynamicLoader.open(path.toString()), named);
        } catch (IOException error) {
            throw new NativeLibraryException(origin + " could not be loaded: " + error.getMessage() + "; it needs glibc 2.28 or"
                    + " later and libgcc_s.so.1, and a folder that is not mounted noexec", error);
        }
    }

    /// First without a file system, which may be read-only or mounted noexec, then from a temporary folder.
    private static Loaded loadFromJar(Platform platform) {
        String folder = platform.folder().orElseThrow(() -> new NativeLibraryException(unsupported(platform)));
        byte[] library;
        try {
            library = inJar("/META-INF/native/" + folder + "/" + FILE);
        } catch (IOException | LinkageError error) {
            // Also where the JVM cannot load its own library for its files, for example in an empty root.
            return new Loaded(null, "libhugewise could not be read from the jar: " + error, false);
        }
        if (library == null) {
            return new Loaded(null, "this build of the jar has no libhugewise for " + folder);
        }
        String origin = "the library in the jar";
        String why;
        try {
            return checked(fromMemory(library), origin);
        } catch (NoDescriptorException error) {
            return new Loaded(null, "libhugewise could not be loaded: " + error.getMessage(), false);
        } catch (IOException error) {
            why = "from memory: " + error;
        }
        String temporary = System.getProperty("java.io.tmpdir", "");
        // A loaded library does not need its file: deleting it now leaves nothing behind if the JVM is killed.
        try (PrivateFolder folderOfOurs = PrivateFolder.in(Path.of(temporary), user())) {
            return checked(DynamicLoader.open(folderOfOurs.write(FILE, library).toString()), origin);
        } catch (IOException | InvalidPathException | UnsupportedOperationException error) {
            return new Loaded(null, "libhugewise could not be loaded " + why + "; from " + temporary + ": " + error);
        }
    }

    /// The process has as many open files as it may.
    private static final class NoDescriptorException extends IOException {
        private static final long serialVersionUID = 1;

        NoDescriptorException() {
            super("memfd_create: " + SystemCall.text(-SystemCall.EMFILE));
        }
    }

    private static SymbolLookup fromMemory(byte[] library) throws IOException {
        try (Arena local = Arena.ofConfined()) {
            long name = local.allocateFrom(FILE).address();
            long file = SystemCall.MEMFD_CREATE.call(name, MFD_CLOEXEC | MFD_EXEC);
            file = file == -SystemCall.EINVAL ? SystemCall.MEMFD_CREATE.call(name, MFD_CLOEXEC) : file;
            if (file == -SystemCall.EMFILE) {
                throw new NoDescriptorException();
            }
            if (file < 0) {
                throw new IOException("memfd_create: " + SystemCall.text(file));
            }
            try {
                Path path = Path.of("/proc/self/fd/" + file);
                Files.write(path, library, StandardOpenOption.WRITE);
                return DynamicLoader.open(path.toString());
            } finally {
                SystemCall.CLOSE.call(file);
            }
        }
    }

    static String unsupported(Platform platform) {
        return "libhugewise is for Linux on x86_64 and aarch64, and this is " + platform;
    }

    private static byte @Nullable [] inJar(String name) throws IOException {
        URL found = NativeLibrary.class.getResource(name);
        if (found == null) {
            return null;
        }
        try (InputStream in = found.openStream()) {
            return in.readAllBytes();
        }
    }

    private static Loaded checked(SymbolLookup functions, String origin) {
        var address = functions.find("hugewise_abi_version")
                .orElseThrow(() -> new NativeLibraryException(origin + " is not libhugewise: it has no hugewise_abi_version"));
        int version = call(address);
        if (version != ABI_VERSION) {
            throw new NativeLibraryException(origin + " has version " + version + " of its interface, and this jar needs "
                    + ABI_VERSION + ": use a libhugewise and a jar of the same release");
        }
        return new Loaded(functions, "");
    }

    /// The effective user id of this process.
    static int user() {
        return call(Linker.nativeLinker().defaultLookup().findOrThrow("geteuid"));
    }

    /// The size of a base page in bytes.
    static long pageSize() {
        return call(Linker.nativeLinker().defaultLookup().findOrThrow("getpagesize"));
    }

    private static int call(MemorySegment function) {
        try {
            return (int) Linker.nativeLinker().downcallHandle(function, FunctionDescriptor.of(JAVA_INT)).invokeExact();
        } catch (Throwable error) {
            throw Libhugewise.thrown(error);
        }
    }

    /// `dlopen`, `dlsym` and `dlerror`.
    private static final class DynamicLoader {
        private DynamicLoader() {}

        static SymbolLookup open(String path) throws IOException {
            MethodHandle open = function("dlopen", FunctionDescriptor.of(ADDRESS, ADDRESS, JAVA_INT));
            MethodHandle symbol = function("dlsym", FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS));
            MethodHandle error = function("dlerror", FunctionDescriptor.of(ADDRESS));
            try (Arena local = Arena.ofConfined()) {
                MemorySegment library = (MemorySegment) open.invokeExact(local.allocateFrom(path), RTLD_NOW);
                if (library.address() == 0) {
                    MemorySegment text = (MemorySegment) error.invokeExact();
                    throw new IOException(text.address() == 0 ? "dlopen failed" : text.reinterpret(Long.MAX_VALUE).getString(0));
                }
                return name -> find(symbol, library, name);
            } catch (IOException unloadable) {
                throw unloadable;
            } catch (Throwable unexpected) {
                throw Libhugewise.thrown(unexpected);
            }
        }

        private static Optional<MemorySegment> find(MethodHandle symbol, MemorySegment library, String name) {
            try (Arena local = Arena.ofConfined()) {
                MemorySegment found = (MemorySegment) symbol.invokeExact(library, local.allocateFrom(name));
                return found.address() == 0 ? Optional.empty() : Optional.of(found);
            } catch (Throwable error) {
                throw Libhugewise.thrown(error);
            }
        }

        private static MethodHandle function(String name, FunctionDescriptor type) throws IOException {
            Linker linker = Linker.nativeLinker();
            MemorySegment found = linker.defaultLookup().find(name)
                    .orElseThrow(() -> new IOException("the C library has no " + name));
            return linker.downcallHandle(found, type);
        }
    }
}
