package io.hugewise.memory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/// What the kernel is told about memory: `madvise`, `mbind`, and its name.
final class Advice {
    static final int HUGEPAGE = 14;
    static final int NOHUGEPAGE = 15;
    static final int DONTDUMP = 16;
    static final int POPULATE_WRITE = 23;
    static final int COLLAPSE = 25;

    private static final int BIND = 2;
    private static final int INTERLEAVE = 3;
    private static final int ALLOWED_NODES = 4;
    /// Bits of a mask of nodes; the kernel reads one less than it is told.
    private static final int NODES = 1024;

    private static final int SET_VMA = 0x53564d41;
    private static final int LONGEST_NAME = 79;

    private Advice() {}

    /// The answer of `madvise`: 0, or a negative errno.
    static long advise(long address, long length, int advice) {
        return SystemCall.MADVISE.call(address, length, advice);
    }

    /// Allocates pages from one node only: 0, or a negative errno.
    static long bind(long address, long length, int node) {
        if (node >= NODES) {
            return -SystemCall.EINVAL;
        }
        try (Arena local = Arena.ofConfined()) {
            MemorySegment mask = local.allocate(NODES / 8, 8);
            mask.set(ValueLayout.JAVA_BYTE, node / 8, (byte) (1 << node % 8));
            return SystemCall.MBIND.call(address, length, BIND, mask.address(), NODES + 1, 0);
        }
    }

    /// Allocates pages from all nodes that this process may use, in turns: 0, or a negative errno.
    static long interleave(long address, long length) {
        try (Arena local = Arena.ofConfined()) {
            MemorySegment mask = local.allocate(NODES / 8, 8);
            long allowed = SystemCall.GET_MEMPOLICY.call(0, mask.address(), NODES + 1, 0, ALLOWED_NODES);
            return allowed < 0 ? allowed : SystemCall.MBIND.call(address, length, INTERLEAVE, mask.address(), NODES + 1, 0);
        }
    }

    /// Names memory in `/proc/PID/maps`, if the kernel has names.
    static void name(long address, long length, String name) {
        StringBuilder taken = new StringBuilder(name.isEmpty() ? "hugewise" : "hugewise " + name);
        taken.setLength(Math.min(LONGEST_NAME, taken.length()));
        for (int i = 0; i < taken.length(); i++) {
            char c = taken.charAt(i);
            if (c < ' ' || c > '~' || "[]\\$`".indexOf(c) >= 0) {
                taken.setCharAt(i, '_');
            }
        }
        try (Arena local = Arena.ofConfined()) {
            MemorySegment text = local.allocateFrom(taken.toString());
            SystemCall.PRCTL.call(SET_VMA, 0, address, length, text.address());
        }
    }
}
