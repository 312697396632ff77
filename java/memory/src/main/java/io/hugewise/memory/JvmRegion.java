package io.hugewise.memory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;

/// Memory of the JVM, for platforms without libhugewise. Its page sizes are unknown.
record JvmRegion(MemorySegment memory, Obtained obtained, Platform platform) implements Region {
    /// Alignment in bytes: the base page size of most machines.
    private static final long PAGE = 4096;

    /// @throws HugeMemoryException if base pages are not among the backings
    static JvmRegion reserve(HugeOptions options, Arena arena, Platform platform) {
        String cause = NativeLibrary.unsupported(platform);
        List<Fallback> fallbacks = new ArrayList<>();
        for (Backing backing : options.backings()) {
            if (backing.kind() == Backing.Kind.BASE && options.node().isEmpty() && !options.isInterleaved()) {
                MemorySegment memory = arena.allocate(options.size(), PAGE);
                return new JvmRegion(memory, new Obtained(backing, PAGE, fallbacks), platform);
            }
            fallbacks.add(new Fallback(backing, cause));
        }
        throw new HugeMemoryException(options + " could not be reserved: " + cause
                + "; with base pages among the backings, and no node, the JVM's own memory is used", options.size(), 0);
    }

    @Override
    public Coverage coverage() {
        return new Coverage.Unknown(memory.byteSize(), NativeLibrary.unsupported(platform));
    }

    /// Does nothing: the JVM has zeroed the memory, so it is resident.
    @Override
    public Pretouched pretouch(long offset, long length, int threads) {
        return new Pretouched(length, Duration.ZERO, 0, OptionalLong.empty());
    }
}
