package io.hugewise.micrometer;

import io.hugewise.memory.BlockAllocator;
import io.hugewise.memory.Coverage;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.time.Duration;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.DoubleSupplier;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/// Gauges of an arena, and of an allocator in it:
///
/// | Name | Meaning |
/// |---|---|
/// | `hugewise.arena.size` | reserved bytes |
/// | `hugewise.arena.used` | allocated bytes |
/// | `hugewise.arena.resident` | resident bytes by `page.size` (`base`, `huge`), read from the kernel |
/// | `hugewise.arena.fallbacks` | number of better backings that failed |
/// | `hugewise.allocator.live` | bytes of blocks in use |
/// | `hugewise.allocator.held` | bytes of blocks in use, and of free blocks of the same spans |
/// | `hugewise.allocator.touched` | bytes of pages that had blocks and were not returned to the kernel |
///
/// `held` and `touched` are those of a [HugeAllocator]. All have the tags `arena` (its name, or `unnamed`) and `backing`;
/// arenas of one registry need different names, because a registry ignores a second gauge with the same tags. A value is
/// NaN if it is unknown or the arena is closed. The arena may be confined to a thread.
///
/// The resident bytes, which need a walk over the page table, and `live` are read at most once per sampling interval,
/// 10 s unless set by [#withSamplingInterval]. All other values are read at each query.
///
/// ```java
/// try (var metrics = new HugeMemoryMetrics(arena, allocator)) {
///     metrics.bindTo(registry);
///     …
/// }
/// ```
public final class HugeMemoryMetrics implements MeterBinder, AutoCloseable {
    private static final Duration SAMPLING_INTERVAL = Duration.ofSeconds(10);

    private final HugeArena arena;
    private final Optional<BlockAllocator> allocator;
    private final Queue<Runnable> removals = new ConcurrentLinkedQueue<>();

    private final long intervalNs;
    private final LongSupplier clock;
    private final Sampled<Coverage> coverage;

    /// Metrics of an arena.
    ///
    /// @param arena the arena
    public HugeMemoryMetrics(HugeArena arena) {
        this(arena, Optional.empty(), SAMPLING_INTERVAL, System::nanoTime);
    }

    /// Metrics of an arena, and of an allocator in it.
    ///
    /// @param arena the arena
    /// @param allocator the allocator
    public HugeMemoryMetrics(HugeArena arena, BlockAllocator allocator) {
        this(arena, Optional.of(allocator), SAMPLING_INTERVAL, System::nanoTime);
    }

    HugeMemoryMetrics(HugeArena arena, Optional<BlockAllocator> allocator, Duration interval, LongSupplier clock) {
        this.arena = arena;
        this.allocator = allocator;
        this.intervalNs = interval.toNanos();
        this.clock = clock;
        this.coverage = new Sampled<>(arena::coverage);
    }

    /// Sets the sampling interval.
    ///
    /// @param interval how long a reading is kept; zero to read at each query
    /// @return metrics with this interval, not bound to a registry
    public HugeMemoryMetrics withSamplingInterval(Duration interval) {
        return new HugeMemoryMetrics(arena, allocator, interval, clock);
    }

    /// Registers the gauges. The registry holds the arena and the allocator until [#close].
    ///
    /// @param registry the registry
    @Override
    public void bindTo(MeterRegistry registry) {
        Tags tags = Tags.of("arena", arena.name().orElse("unnamed"), "backing", arena.backing().backing().toString());
        bytes(registry, tags, "hugewise.arena.size", "Reserved bytes", arena::size);
        bytes(registry, tags, "hugewise.arena.used", "Allocated bytes", arena::used);
        String resident = "Resident bytes, read from the kernel";
        bytes(registry, tags.and("page.size", "huge"), "hugewise.arena.resident", resident, () -> resident(true));
        bytes(registry, tags.and("page.size", "base"), "hugewise.arena.resident", resident, () -> resident(false));
        gauge(registry, tags, "hugewise.arena.fallbacks", null, "Number of better backings that failed",
                () -> arena.backing().fallbacks().size());
        allocator.ifPresent(of -> {
            Sampled<Long> live = new Sampled<>(of::live);
            bytes(registry, tags, "hugewise.allocator.live", "Bytes of blocks in use", live::get);
            if (of instanceof HugeAllocator huge) {
                bytes(registry, tags, "hugewise.allocator.held", "Bytes that the allocator holds", huge::held);
                bytes(registry, tags, "hugewise.allocator.touched", "Bytes of pages that may be resident", huge::touched);
            }
        });
    }

    /// Removes the gauges from the registries. The arena stays open.
    @Override
    public void close() {
        for (Runnable removal = removals.poll(); removal != null; removal = removals.poll()) {
            removal.run();
        }
    }

    private double resident(boolean huge) {
        return switch (coverage.get()) {
            case Coverage.Known known -> huge ? known.huge() : known.resident() - known.huge();
            case Coverage.Unknown _ -> Double.NaN;
        };
    }

    private void bytes(MeterRegistry registry, Tags tags, String name, String description, DoubleSupplier read) {
        gauge(registry, tags, name, "bytes", description, read);
    }

    private void gauge(
            MeterRegistry registry, Tags tags, String name, @Nullable String unit, String description, DoubleSupplier read) {
        Gauge gauge = Gauge.builder(name, () -> whileOpen(read))
                .tags(tags)
                .baseUnit(unit)
                .description(description)
                .register(registry);
        removals.add(() -> registry.remove(gauge));
    }

    private double whileOpen(DoubleSupplier read) {
        try {
            return arena.scope().isAlive() ? read.getAsDouble() : Double.NaN;
        } catch (IllegalStateException _) {
            // Another thread has closed the arena since.
            return Double.NaN;
        }
    }

    /// A value that is read at most once per sampling interval.
    private final class Sampled<T> {
        private final Supplier<T> read;
        private @Nullable T last;
        private long time;

        Sampled(Supplier<T> read) {
            this.read = read;
        }

        synchronized T get() {
            long now = clock.getAsLong();
            T value = last;
            if (value == null || now - time >= intervalNs) {
                value = read.get();
                last = value;
                time = now;
            }
            return value;
        }
    }
}
