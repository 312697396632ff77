package io.hugewise.benchmarks;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.hugewise.memory.Backing;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;

/// Memory from the C library (`mmap`, `malloc`), without hugewise. Pointers are `long`s, which is the fastest
/// way to pass them. Constants are those of Linux on x86_64 and aarch64.
final class RawMemory {
    private static final int READ_WRITE = 1 | 2;
    private static final int PRIVATE_ANONYMOUS = 2 | 0x20;
    private static final int HUGETLB = 0x40000;
    private static final int ADVISE_HUGE = 14;
    private static final int ADVISE_NOT_HUGE = 15;
    private static final int POPULATE_WRITE = 23;
    private static final long HUGE = 2 << 20;

    private static final Linker LINKER = Linker.nativeLinker();
    private static final StructLayout STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));
    private static final MethodHandle MMAP = function(
            "mmap", FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG), Linker.Option.captureCallState("errno"));
    private static final MethodHandle MADVISE = function(
            "madvise", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT), Linker.Option.captureCallState("errno"));
    private static final MethodHandle MUNMAP = function("munmap", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG));

    /// The whole address space.
    static final MemorySegment ALL = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    private RawMemory() {}

    private static MethodHandle function(String name, FunctionDescriptor descriptor, Linker.Option... options) {
        return LINKER.downcallHandle(LINKER.defaultLookup().findOrThrow(name), descriptor, options);
    }

    /// The same backing for an arena.
    static Backing backing(String name) {
        return switch (name) {
            case "base" -> Backing.base();
            case "thp" -> Backing.thp();
            case "hugetlb" -> Backing.hugetlb();
            default -> throw new IllegalArgumentException("no backing: " + name);
        };
    }

    /// Maps and populates memory.
    ///
    /// @param bytes size in bytes
    /// @param backing `base`, `thp` or `hugetlb`
    /// @param owner arena that unmaps the memory when it is closed
    static MemorySegment map(long bytes, String backing, Arena owner) {
        boolean pool = backing.equals("hugetlb");
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(STATE);
            // Reserves space for alignment to a huge page; mappings of a pool are aligned by the kernel.
            long mapped = pool ? bytes : bytes + HUGE;
            long address = (long) MMAP.invokeExact(
                    state, 0L, mapped, READ_WRITE, pool ? PRIVATE_ANONYMOUS | HUGETLB : PRIVATE_ANONYMOUS, -1, 0L);
            if (address == -1) {
                throw new IllegalStateException("mmap: errno " + (int) ERRNO.get(state, 0L));
            }
            long start = address + HUGE - 1 & -HUGE;
            if (!pool) {
                advise(state, start, bytes, backing.equals("thp") ? ADVISE_HUGE : ADVISE_NOT_HUGE);
            }
            advise(state, start, bytes, POPULATE_WRITE);
            return MemorySegment.ofAddress(start).reinterpret(bytes, owner, ignored -> unmap(address, mapped));
        } catch (RuntimeException | Error error) {
            throw error;
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
    }

    private static void advise(MemorySegment state, long start, long bytes, int advice) throws Throwable {
        if ((int) MADVISE.invokeExact(state, start, bytes, advice) != 0) {
            throw new IllegalStateException("madvise " + advice + ": errno " + (int) ERRNO.get(state, 0L));
        }
    }

    private static void unmap(long address, long bytes) {
        try {
            int status = (int) MUNMAP.invokeExact(address, bytes);
            assert status == 0;
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
    }
}
