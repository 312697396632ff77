package io.hugewise.micrometer;

import io.hugewise.memory.Coverage;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.util.Optional;
import java.util.function.ToDoubleFunction;

/// Gauges of an arena, read at each query:
///
/// | Name | Meaning |
/// |---|---|
/// | `hugewise.arena.size` | reserved bytes |
/// | `hugewise.arena.used` | allocated bytes |
/// | `hugewise.arena.resident` | resident bytes by `page.size` (`base`, `huge`), read from the kernel |
/// | `hugewise.arena.fallbacks` | number of better backings that failed |
/// | `hugewise.allocator.held` | bytes of blocks in use, and of free blocks of their spans or of threads |
///
/// All have the tags `arena` (its name, or `unnamed`) and `backing`. A value is NaN if it is unknown or the arena
/// is closed.
///
/// ```java
/// new HugeMemoryMetrics(arena).bindTo(registry);
/// ```
public final class HugeMemoryMetrics implements MeterBinder {
    private final HugeArena arena;
    private final Optional<HugeAllocator> allocator;

    /// Metrics of an arena.
    ///
    /// @param arena the arena
    public HugeMemoryMetrics(HugeArena arena) {
        this(arena, Optional.empty());
    }

    /// Metrics of an arena, and of an allocator in it.
    ///
    /// @param arena the arena
    /// @param allocator the allocator
    public HugeMemoryMetrics(HugeArena arena, HugeAllocator allocator) {
        this(arena, Optional.of(allocator));
    }

    private HugeMemoryMetrics(HugeArena arena, Optional<HugeAllocator> allocator) {
        this.arena = arena;
        this.allocator = allocator;
    }

    @Override
    public void bindTo(MeterRegistry registry) {
        Tags tags = Tags.of("arena", arena.name().orElse("unnamed"), "backing", arena.backing().backing().toString());
        bytes(registry, tags, "hugewise.arena.size", "Reserved bytes", HugeArena::size);
        bytes(registry, tags, "hugewise.arena.used", "Allocated bytes", HugeArena::used);
        String resident = "Resident bytes, read from the kernel";
        bytes(registry, tags.and("page.size", "huge"), "hugewise.arena.resident", resident, of -> resident(of, true));
        bytes(registry, tags.and("page.size", "base"), "hugewise.arena.resident", resident, of -> resident(of, false));
        gauge(tags, "hugewise.arena.fallbacks", "Number of better backings that failed", of -> of.backing().fallbacks().size())
                .register(registry);
        allocator.ifPresent(used -> bytes(registry, tags, "hugewise.allocator.held", "Bytes that the allocator holds", _ -> used.held()));
    }

    private static double resident(HugeArena arena, boolean huge) {
        return switch (arena.coverage()) {
            case Coverage.Known known -> {
                long onHuge = known.pages().stream().skip(1).mapToLong(Coverage.PageBytes::bytes).sum();
                yield huge ? onHuge : known.resident() - onHuge;
            }
            case Coverage.Unknown _ -> Double.NaN;
        };
    }

    private void bytes(MeterRegistry registry, Tags tags, String name, String description, ToDoubleFunction<HugeArena> read) {
        gauge(tags, name, description, read).baseUnit("bytes").register(registry);
    }

    private Gauge.Builder<HugeArena> gauge(
            Tags tags, String name, String description, ToDoubleFunction<HugeArena> read) {
        ToDoubleFunction<HugeArena> whileOpen = of -> of.scope().isAlive() ? read.applyAsDouble(of) : Double.NaN;
        return Gauge.builder(name, arena, whileOpen).tags(tags).description(description);
    }
}
