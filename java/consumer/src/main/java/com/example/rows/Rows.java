package com.example.rows;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import io.hugewise.micrometer.HugeMemoryMetrics;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.util.List;

/// Keeps rows off-heap: a table of offsets on huge pages, and rows in an allocator.
public final class Rows {
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;
    private static final int ROWS = 100_000;

    private Rows() {}

    public static void main(String[] arguments) throws URISyntaxException {
        HugeOptions options = HugeOptions.reserve(64L << 20)
                .prefer(Backing.hugetlb(), Backing.thp(), Backing.base())
                .named("rows")
                .pretouch();
        try (HugeArena arena = HugeArena.ofShared(options)) {
            MemorySegment table = arena.allocate(8L * ROWS);
            HugeAllocator allocator = HugeAllocator.of(arena);
            var registry = new SimpleMeterRegistry();
            new HugeMemoryMetrics(arena, allocator).bindTo(registry);
            for (int row = 0; row < ROWS; row++) {
                long offset = allocator.allocateOffset(16 + row % 500);
                MemorySegment fields = allocator.memory().asSlice(offset, 16);
                fields.set(LONG, 0, row);
                fields.set(LONG, 8, -row);
                table.setAtIndex(LONG, row, offset);
            }
            long sum = 0;
            for (int row = 0; row < ROWS; row++) {
                MemorySegment fields = allocator.memory().asSlice(table.getAtIndex(LONG, row), 16);
                sum += fields.get(LONG, 0) + fields.get(LONG, 8);
                allocator.freeOffset(table.getAtIndex(LONG, row));
            }
            if (sum != 0) {
                throw new AssertionError("rows were mixed up: " + sum);
            }
            String module = Rows.class.getModule().isNamed() ? "as a module" : "on the class path";
            System.out.println(module + ": " + arena.backing() + "\n" + arena.coverage());
            System.out.println("hugewise.arena.size: " + registry.get("hugewise.arena.size").gauge().value() + " bytes");
            for (Class<?> type : List.of(HugeArena.class, HugeMemoryMetrics.class)) {
                System.out.println("from " + Path.of(type.getProtectionDomain().getCodeSource().getLocation().toURI()));
            }
        }
    }
}
