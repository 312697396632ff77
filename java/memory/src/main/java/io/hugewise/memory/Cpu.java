package io.hugewise.memory;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import org.jspecify.annotations.Nullable;

/// The CPU on which the calling thread runs.
final class Cpu {
    private static final @Nullable MethodHandle SCHED_GETCPU = Metadata.isKernelCallable()
            ? Linker.nativeLinker()
                    .defaultLookup()
                    .find("sched_getcpu")
                    .map(Cpu::handle)
                    .orElse(null)
            : null;

    private Cpu() {}

    private static MethodHandle handle(MemorySegment function) {
        return Linker.nativeLinker()
                .downcallHandle(function, FunctionDescriptor.of(ValueLayout.JAVA_INT), Linker.Option.critical(false));
    }

    /// Its number, or a number of the thread if it cannot be asked for. The thread may run on another one a moment later.
    static int current() {
        if (SCHED_GETCPU == null) {
            return (int) Thread.currentThread().threadId();
        }
        try {
            int cpu = (int) SCHED_GETCPU.invokeExact();
            return cpu < 0 ? (int) Thread.currentThread().threadId() : cpu;
        } catch (Throwable error) {
            throw Libhugewise.thrown(error);
        }
    }
}
