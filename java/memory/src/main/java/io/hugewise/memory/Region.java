package io.hugewise.memory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Optional;

/// Reserved memory.
sealed interface Region permits NativeRegion, KernelRegion, JvmRegion {
    /// Reserves memory: through libhugewise, else from the kernel, and on other systems from the JVM.
    static Region reserve(HugeOptions options, Arena scope, Platform platform) {
        if (platform.folder().isEmpty() && !NativeLibrary.isNamed()) {
            return JvmRegion.reserve(options, scope, platform);
        }
        Optional<Libhugewise> library = Libhugewise.find();
        Region region = library.isPresent()
                ? NativeRegion.reserve(options, scope, library.get())
                : KernelRegion.reserve(options, scope, Libhugewise.whyAbsent());
        region.advise(options);
        return region;
    }

    /// Options that take effect before memory is populated, whoever reserved it.
    private void advise(HugeOptions options) {
        long page = obtained().pageSize();
        long address = memory().address();
        long length = memory().byteSize() + page - 1 & -page;
        if (options.isInterleaved()) {
            check(Advice.interleave(address, length), "interleaved over NUMA nodes");
        }
        if (!options.isDumped()) {
            check(Advice.advise(address, length, Advice.DONTDUMP), "left out of core dumps");
        }
    }

    private void check(long answer, String what) {
        if (answer < 0) {
            throw new HugeMemoryException("memory could not be " + what + ": " + SystemCall.text(answer),
                    memory().byteSize(), (int) -answer);
        }
    }

    /// The whole region, with the lifetime of its arena.
    MemorySegment memory();

    Obtained obtained();

    Coverage coverage();

    /// Populates `length` bytes from `offset`; 0 threads means all usable CPUs.
    Pretouched pretouch(long offset, long length, int threads);
}
