package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;

/// System calls of Linux on x86_64 and aarch64.
enum SystemCall {
    MMAP(9, 222),
    MPROTECT(10, 226),
    MUNMAP(11, 215),
    MADVISE(28, 233),
    PRCTL(157, 167),
    MBIND(237, 235),
    GET_MEMPOLICY(239, 236),
    MEMBARRIER(324, 283),
    MEMFD_CREATE(319, 279),
    CLOSE(3, 57),
    FLOCK(73, 32),
    OPENAT(257, 56);

    static final int EAGAIN = 11;
    static final int ENOMEM = 12;
    static final int EFAULT = 14;
    static final int EINVAL = 22;
    static final int EMFILE = 24;

    private final int onX86;
    private final int onAarch64;

    SystemCall(int onX86, int onAarch64) {
        this.onX86 = onX86;
        this.onAarch64 = onAarch64;
    }

    /// Calls the kernel.
    ///
    /// @param arguments at most six
    /// @return its answer; the negative errno if it refuses
    long call(long... arguments) {
        long[] all = new long[6];
        System.arraycopy(arguments, 0, all, 0, arguments.length);
        long number = Platform.current().machine().equals("aarch64") ? onAarch64 : onX86;
        try (Arena local = Arena.ofConfined()) {
            MemorySegment state = local.allocate(Function.STATE);
            long answer = (long) Function.SYSCALL.invokeExact(state, number, all[0], all[1], all[2], all[3], all[4], all[5]);
            return answer == -1 ? -(long) (int) Function.ERRNO.get(state, 0L) : answer;
        } catch (Throwable error) {
            throw Libhugewise.thrown(error);
        }
    }

    /// `Cannot allocate memory (errno 12)`, for the errors that callers meet; otherwise the number alone.
    static String text(long answer) {
        int errno = (int) -answer;
        String name = switch (errno) {
            case 1 -> "Operation not permitted";
            case EAGAIN -> "Resource temporarily unavailable";
            case 2 -> "No such file or directory";
            case ENOMEM -> "Cannot allocate memory";
            case 13 -> "Permission denied";
            case 14 -> "Bad address";
            case 16 -> "Device or resource busy";
            case EINVAL -> "Invalid argument";
            case EMFILE -> "Too many open files";
            case 38 -> "Function not implemented";
            default -> "error";
        };
        return name + " (errno " + errno + ")";
    }

    /// `syscall(2)`, bound at the first call: that needs native access.
    private static final class Function {
        private static final StructLayout STATE = Linker.Option.captureStateLayout();
        private static final VarHandle ERRNO = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));
        private static final MethodHandle SYSCALL = Linker.nativeLinker()
                .downcallHandle(
                        Linker.nativeLinker().defaultLookup().findOrThrow("syscall"),
                        FunctionDescriptor.of(
                                JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG),
                        Linker.Option.captureCallState("errno"),
                        Linker.Option.firstVariadicArg(1));
    }
}
