package io.hugewise.micrometer;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import org.junit.jupiter.api.Test;

class HugeMemoryMetricsTest {
    private final SimpleMeterRegistry registry = new SimpleMeterRegistry();

    private double value(String name, String... tags) {
        return registry.get(name).tags(tags).gauge().value();
    }

    @Test
    void gaugesAreReadFromTheArena() {
        HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(4 << 20)
                .prefer(Backing.hugetlb(1L << 40), Backing.base())
                .named("rows")
                .pretouch());
        arena.allocate(1 << 20);
        HugeAllocator allocator = HugeAllocator.of(arena.allocate(1 << 20));
        allocator.allocate(100_000, 16);
        new HugeMemoryMetrics(arena, allocator).bindTo(registry);
        String[] tags = {"arena", "rows", "backing", "base"};
        assertThat(value("hugewise.arena.size", tags)).isEqualTo(4 << 20);
        assertThat(value("hugewise.arena.used", tags)).isEqualTo(2 << 20);
        assertThat(value("hugewise.arena.fallbacks", tags)).isEqualTo(1);
        assertThat(value("hugewise.arena.resident", "page.size", "huge")).isZero();
        assertThat(value("hugewise.arena.resident", "page.size", "base")).isPositive();
        assertThat(value("hugewise.allocator.held", tags)).isBetween(100_000.0, 110_000.0);
        arena.close();
        assertThat(value("hugewise.arena.size", tags)).isNaN();
        assertThat(value("hugewise.arena.resident", "page.size", "base")).isNaN();
    }
}
