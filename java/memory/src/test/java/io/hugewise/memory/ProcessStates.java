package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// A program that gets into a state that a process may get into after its start, and uses memory before or after it.
///
/// Arguments: the state, and `early` to enter it before the library is used.
final class ProcessStates {
    private static final long SIZE = 4 << 20;
    /// Exit status of a program that cannot enter its state.
    static final int SKIPPED = 77;

    private ProcessStates() {}

    public static void main(String[] arguments) throws Exception {
        boolean isEarly = arguments[1].equals("early");
        loadClasses();
        List<HugeArena> before = isEarly ? List.of() : reserve(0);
        enter(arguments[0]);
        int denied = arguments[0].startsWith("denied ") ? Integer.parseInt(arguments[0].split(" ")[1]) : 0;
        before.forEach(arena -> use(arena, denied));
        for (HugeArena arena : reserve(denied)) {
            use(arena, denied);
        }
        System.out.println("used");
    }

    /// A process without files cannot load classes from a folder.
    private static void loadClasses() throws IOException, ClassNotFoundException {
        for (String path : System.getProperty("java.class.path").split(":")) {
            Path root = Path.of(path);
            try (var files = Files.walk(root.resolve("io/hugewise/memory"))) {
                for (Path file : files.toList()) {
                    String name = file.getFileName().toString();
                    if (name.endsWith(".class") && !name.contains("Test") && !name.matches("Machine(\\$.*)?.class")) {
                        String type = root.relativize(file).toString().replace(".class", "").replace('/', '.');
                        try {
                            Class.forName(type, false, ProcessStates.class.getClassLoader());
                        } catch (NoClassDefFoundError framework) {
                            // A class of the tests: their framework is not on this class path.
                            continue;
                        }
                    }
                }
            }
        }
    }

    /// An arena on each backing that the kernel can give.
    private static List<HugeArena> reserve(int denied) {
        List<HugeArena> arenas = new ArrayList<>();
        HugeOptions options = HugeOptions.reserve(SIZE);
        arenas.add(HugeArena.ofShared(options.only(Backing.base())));
        arenas.add(HugeArena.ofShared(options.prefer(Backing.hugetlb(), Backing.thp(), Backing.base())));
        try {
            arenas.add(HugeArena.ofShared(options.only(Backing.thp())));
        } catch (HugeMemoryException error) {
            expect(denied == MADVISE && error.errno() != 0, error);
        }
        for (Backing pool : List.of(Backing.hugetlb(), Backing.parse("hugetlb:2MiB"))) {
            try {
                HugeArena.ofShared(options.only(pool)).close();
            } catch (HugeMemoryException error) {
                // The kernel was asked, and the pool is empty.
                expect(error.getMessage().contains("Cannot allocate memory"), error);
            }
        }
        return arenas;
    }

    private static void use(HugeArena arena, int denied) {
        // Some are populated by the threads of a pre-touch, and all by one.
        Pretouched touched = arena.pretouch();
        expect(touched.bytes() >= SIZE && touched.threads() >= 1, touched);
        switch (arena.coverage()) {
            case Coverage.Known known -> expect(known.resident() >= SIZE, known);
            case Coverage.Unknown unknown -> expect(unknown.reason().length() > 10, unknown);
        }
        Backing.Kind kind = arena.backing().backing().kind();
        boolean isReturned = kind == Backing.Kind.BASE || kind == Backing.Kind.THP;
        HugeAllocator allocator =
                isReturned ? HugeAllocator.decommitting(arena, Duration.ofNanos(1)) : HugeAllocator.of(arena);
        // So much that other threads' caches are taken back.
        List<Long> blocks = new ArrayList<>();
        Thread other = Thread.ofPlatform().unstarted(() -> allocator.freeOffset(allocator.allocateOffset(100)));
        try {
            other.start();
            other.join();
        } catch (OutOfMemoryError _) {
            other.run();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
        for (long offset; (offset = allocator.tryAllocateOffset(1000)) >= 0; ) {
            allocator.memory().set(ValueLayout.JAVA_BYTE, offset, (byte) 7);
            blocks.add(offset);
        }
        expect(blocks.size() > SIZE / 1024 * 9 / 10, blocks.size());
        blocks.forEach(allocator::freeOffset);
        allocator.trim();
        MemorySegment zeroed = allocator.allocateZeroed(SIZE / 2);
        expect(zeroed.mismatch(zeroed) < 0 && zeroed.get(ValueLayout.JAVA_BYTE, 0) == 0, zeroed);
        if (Coverage.of(allocator.memory()) instanceof Coverage.Unknown unknown) {
            expect(unknown.reason().length() > 10, unknown);
        }
        arena.close();
        arena.close();
    }

    private static void expect(boolean condition, Object found) {
        if (!condition) {
            throw new AssertionError("" + found, found instanceof Throwable cause ? cause : null);
        }
    }

    // The states

    static final int MADVISE = 28;
    private static final int UNPRIVILEGED = 65534;
    private static final int RLIMIT_NOFILE = 7;
    private static final int RLIMIT_NPROC = 6;
    private static final int PR_SET_DUMPABLE = 4;
    private static final int PR_SET_NO_NEW_PRIVS = 38;

    private static void enter(String state) throws IOException {
        switch (state.split(" ")[0]) {
            case "none" -> {}
            case "user" -> changeUser();
            case "undumpable" -> {
                needs(call("prctl", PR_SET_DUMPABLE, 0));
                if (NativeLibrary.user() == 0) {
                    changeUser();
                }
            }
            case "root" -> {
                try (Arena local = Arena.ofConfined()) {
                    Path empty = Files.createTempDirectory("hugewise-empty");
                    needs(call("chdir", local.allocateFrom(empty.toString()).address()));
                    Files.delete(empty);
                    needs(call("chroot", local.allocateFrom(".").address()));
                }
            }
            case "descriptors" -> limit(RLIMIT_NOFILE);
            case "threads" -> {
                limit(RLIMIT_NPROC);
                if (NativeLibrary.user() == 0) {
                    changeUser();
                }
            }
            case "denied" -> deny(Integer.parseInt(state.split(" ")[1]), Integer.parseInt(state.split(" ")[2]));
            default -> throw new IllegalArgumentException(state);
        }
    }

    private static void changeUser() {
        needs(call("setgid", UNPRIVILEGED));
        needs(call("setuid", UNPRIVILEGED));
    }

    private static void limit(int resource) {
        try (Arena local = Arena.ofConfined()) {
            needs(call("setrlimit", resource, local.allocate(JAVA_LONG, 2).address()));
        }
    }

    /// Denies a system call to all threads.
    private static void deny(int number, int errno) {
        try (Arena local = Arena.ofConfined()) {
            // Load the number; if it is the one, fail, otherwise allow.
            long[] code = {
                instruction(0x20, 0, 0, 0), instruction(0x15, 0, 1, number),
                instruction(0x06, 0, 0, 0x50000 | errno), instruction(0x06, 0, 0, 0x7fff0000)
            };
            MemorySegment program = local.allocate(16, 8);
            program.set(JAVA_SHORT, 0, (short) code.length);
            program.set(ADDRESS, 8, local.allocateFrom(JAVA_LONG, code));
            needs(call("prctl", PR_SET_NO_NEW_PRIVS, 1));
            int seccomp = 317;
            needs(call("syscall", seccomp, 1, 1, program.address()));
        }
    }

    private static long instruction(int code, int ifTrue, int ifFalse, int value) {
        return code | (long) ifTrue << 16 | (long) ifFalse << 24 | (long) value << 32;
    }

    private static void needs(int answer) {
        if (answer != 0) {
            System.exit(SKIPPED);
        }
    }

    private static int call(String function, long... arguments) {
        long[] all = new long[4];
        System.arraycopy(arguments, 0, all, 0, arguments.length);
        try {
            return (int) Linker.nativeLinker()
                    .downcallHandle(
                            Linker.nativeLinker().defaultLookup().findOrThrow(function),
                            FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG))
                    .invokeExact(all[0], all[1], all[2], all[3]);
        } catch (Throwable error) {
            throw new AssertionError(error);
        }
    }
}
