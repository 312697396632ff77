package io.hugewise.micrometer;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Backing;
import io.hugewise.memory.BlockAllocator;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

class HugeMemoryMetricsTest {
    private static final int MIB = 1 << 20;

    private final SimpleMeterRegistry registry = new SimpleMeterRegistry();

    private static HugeOptions base(long size) {
        return HugeOptions.reserve(size).only(Backing.base()).named("rows");
    }

    private double value(String name, String... tags) {
        return registry.get(name).tags(tags).gauge().value();
    }

    /// As a scrape does.
    private double valueInAnotherThread(String name, String... tags) throws Exception {
        var read = new FutureTask<>(() -> value(name, tags));
        Thread.ofPlatform().start(read);
        return read.get();
    }

    @Test
    @Tag("pools")
    void theExampleOfThePageRuns() {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(64L << 20).named("rows"))) {
            var allocator = HugeAllocator.of(arena);
            try (var metrics = new HugeMemoryMetrics(arena, allocator).withSamplingInterval(Duration.ofMinutes(1))) {
                metrics.bindTo(registry);
            }
        }
    }

    @Test
    void gaugesAreReadFromTheArena() {
        HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(4 * MIB)
                .prefer(Backing.hugetlb(1L << 40), Backing.base())
                .named("rows")
                .pretouch());
        arena.allocate(MIB);
        HugeAllocator allocator = HugeAllocator.of(arena.allocate(MIB));
        allocator.allocate(100_000, 16);
        new HugeMemoryMetrics(arena, allocator).bindTo(registry);
        String[] tags = {"arena", "rows", "backing", "base"};
        assertThat(value("hugewise.arena.size", tags)).isEqualTo(4 * MIB);
        assertThat(value("hugewise.arena.used", tags)).isEqualTo(2 * MIB);
        assertThat(value("hugewise.arena.fallbacks", tags)).isEqualTo(1);
        assertThat(value("hugewise.arena.resident", "page.size", "huge")).isZero();
        assertThat(value("hugewise.arena.resident", "page.size", "base")).isPositive();
        assertThat(value("hugewise.allocator.live", tags)).isEqualTo(allocator.live()).isBetween(100_000.0, 110_000.0);
        assertThat(value("hugewise.allocator.held", tags)).isBetween(100_000.0, 110_000.0);
        assertThat(value("hugewise.allocator.touched", tags)).isEqualTo(allocator.touched());
        arena.close();
        registry.forEachMeter(meter -> assertThat(meter.measure()).allMatch(of -> Double.isNaN(of.getValue())));
    }

    @Test
    void aConfinedArenaIsReadByOtherThreads() throws Exception {
        HugeArena arena = HugeArena.ofConfined(base(4 * MIB).pretouch());
        new HugeMemoryMetrics(arena, HugeAllocator.of(arena)).withSamplingInterval(Duration.ZERO).bindTo(registry);
        assertThat(valueInAnotherThread("hugewise.arena.resident", "page.size", "base")).isPositive();
        assertThat(valueInAnotherThread("hugewise.arena.used")).isEqualTo(4 * MIB);
        assertThat(valueInAnotherThread("hugewise.allocator.live")).isZero();
        arena.close();
        assertThat(valueInAnotherThread("hugewise.arena.resident", "page.size", "base")).isNaN();
        assertThat(valueInAnotherThread("hugewise.allocator.live")).isNaN();
    }

    @Test
    void theCoverageIsReadOncePerInterval() {
        var clock = new AtomicLong();
        try (HugeArena arena = HugeArena.ofShared(base(4 * MIB))) {
            new HugeMemoryMetrics(arena, Optional.empty(), Duration.ofNanos(10), clock::get).bindTo(registry);
            assertThat(value("hugewise.arena.resident", "page.size", "huge")).isZero();
            arena.pretouch();
            clock.set(9);
            // The kept reading, also of the other gauge.
            assertThat(value("hugewise.arena.resident", "page.size", "base")).isZero();
            clock.set(10);
            assertThat(value("hugewise.arena.resident", "page.size", "base")).isPositive();
        }
    }

    @Test
    void closeRemovesTheGaugesOfTheArena() {
        registry.counter("requests");
        try (HugeArena arena = HugeArena.ofShared(base(4 * MIB))) {
            try (var metrics = new HugeMemoryMetrics(arena, HugeAllocator.of(arena))) {
                metrics.bindTo(registry);
                assertThat(registry.getMeters()).hasSize(9);
            }
            assertThat(registry.getMeters()).extracting(meter -> meter.getId().getName()).containsExactly("requests");
        }
    }

    @Test
    void anyAllocatorHasItsLiveBytes() {
        BlockAllocator allocator = new BlockAllocator() {
            @Override
            public MemorySegment allocate(long byteSize, long byteAlignment) {
                throw new UnsupportedOperationException();
            }

            @Override
            public MemorySegment tryAllocate(long byteSize) {
                throw new UnsupportedOperationException();
            }

            @Override
            public void free(MemorySegment block) {
                throw new UnsupportedOperationException();
            }

            @Override
            public long live() {
                return 592;
            }
        };
        try (HugeArena arena = HugeArena.ofShared(base(4 * MIB))) {
            new HugeMemoryMetrics(arena, allocator).bindTo(registry);
            assertThat(value("hugewise.allocator.live", "arena", "rows")).isEqualTo(592);
            assertThat(registry.find("hugewise.allocator.held").gauge()).isNull();
        }
    }
}
