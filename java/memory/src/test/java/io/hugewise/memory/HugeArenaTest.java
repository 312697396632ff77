package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.random.RandomGenerator;
import java.util.random.RandomGeneratorFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class HugeArenaTest {
    private static final long MIB = 1 << 20;

    private static HugeOptions base(long size) {
        return HugeOptions.reserve(size).only(Backing.base());
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3})
    void segmentsAreDisjointAlignedAndZero(long seed) {
        RandomGenerator random = RandomGeneratorFactory.of("L64X128MixRandom").create(seed);
        try (HugeArena arena = HugeArena.ofConfined(HugeOptions.reserve(16 * MIB).prefer(Backing.thp(), Backing.base()))) {
            List<MemorySegment> all = new ArrayList<>();
            long end = 0;
            while (arena.used() < 12 * MIB) {
                long alignment = 1L << random.nextInt(16);
                MemorySegment segment = arena.allocate(random.nextLong(1 << random.nextInt(1, 18)), alignment);
                assertThat(segment.address() % alignment).isZero();
                assertThat(segment.address()).isGreaterThanOrEqualTo(end);
                assertThat(segment.mismatch(MemorySegment.ofArray(new byte[(int) segment.byteSize()]))).isEqualTo(-1);
                end = segment.address() + segment.byteSize();
                segment.fill((byte) 1);
                all.add(segment);
            }
            assertThat(all.getLast().scope()).isEqualTo(arena.scope());
        }
    }

    @Test
    void largeSegmentsBeginOnHugePages() {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(16 * MIB).prefer(Backing.thp(), Backing.base()))) {
            arena.allocate(100);
            MemorySegment large = arena.allocate(arena.backing().pageSize() + 1, 8);
            assertThat(large.address() % arena.backing().pageSize()).isZero();
        }
    }

    @Test
    void anExhaustedArenaReportsTheRemainingBytes() {
        try (HugeArena arena = HugeArena.ofShared(base(MIB).named("rows"))) {
            arena.allocate(MIB - 100, 1);
            assertThatThrownBy(() -> arena.allocate(101, 1))
                    .isInstanceOf(MemoryExhaustedException.class)
                    .hasMessageContaining("arena rows of 1MiB has 100 bytes left, and 101 bytes are wanted");
            assertThatThrownBy(() -> arena.allocate(Long.MAX_VALUE, 1)).isInstanceOf(MemoryExhaustedException.class);
            assertThatThrownBy(() -> arena.allocate(1, Long.MIN_VALUE)).isInstanceOf(IllegalArgumentException.class);
            assertThatThrownBy(() -> arena.allocate(1, 1L << 62)).isInstanceOf(MemoryExhaustedException.class);
            assertThatThrownBy(() -> arena.allocate(-1, 1)).isInstanceOf(IllegalArgumentException.class);
            assertThatThrownBy(() -> arena.allocate(1, 3)).isInstanceOf(IllegalArgumentException.class);
            assertThat(arena.allocate(100, 1).byteSize()).isEqualTo(100);
            assertThat(arena.allocate(0, 1).byteSize()).isZero();
        }
    }

    @Test
    void everyUseAfterCloseIsAnException() {
        HugeArena arena = HugeArena.ofShared(base(MIB));
        MemorySegment segment = arena.allocate(100);
        HugeAllocator allocator = HugeAllocator.of(arena);
        MemorySegment block = allocator.allocate(100);
        long offset = allocator.allocateOffset(64);
        arena.close();
        List<Runnable> uses = List.of(
                () -> segment.get(JAVA_BYTE, 0),
                () -> block.set(JAVA_BYTE, 0, (byte) 1),
                () -> allocator.memory().get(JAVA_LONG, offset),
                () -> allocator.allocate(10),
                () -> allocator.allocateOffset(10),
                () -> allocator.allocate(1 << 20, 8),
                () -> allocator.free(block),
                () -> allocator.freeOffset(offset),
                () -> arena.allocate(1),
                arena::coverage,
                arena::pretouch,
                () -> arena.pretouch(segment, 1));
        for (Runnable use : uses) {
            assertThatThrownBy(use::run).isInstanceOf(IllegalStateException.class);
        }
    }

    @Test
    void aConfinedArenaRefusesOtherThreads() throws Exception {
        try (HugeArena arena = HugeArena.ofConfined(base(MIB))) {
            List<Throwable> thrown = new ArrayList<>();
            Thread other = Thread.ofPlatform().start(() -> {
                for (Runnable use : List.<Runnable>of(() -> arena.allocate(1), arena::pretouch, arena::close)) {
                    try {
                        use.run();
                    } catch (RuntimeException error) {
                        thrown.add(error);
                    }
                }
            });
            other.join();
            assertThat(thrown).hasSize(3).allMatch(WrongThreadException.class::isInstance);
        }
    }

    /// As metrics and Flight Recorder do.
    @Test
    void anyThreadReadsTheCoverageWhileTheOwnerClosesTheArena() throws Exception {
        var arenas = new SynchronousQueue<HugeArena>();
        var readings = new AtomicInteger();
        FutureTask<Void> reader = new FutureTask<>(() -> {
            for (int i = 0; i < 50; i++) {
                HugeArena arena = arenas.take();
                try {
                    while (true) {
                        assertThat(arena.coverage()).isInstanceOf(Coverage.Known.class);
                        readings.getAndIncrement();
                    }
                } catch (IllegalStateException closed) {
                    assertThat(closed).hasMessage("arena of 1MiB is closed");
                }
            }
            return null;
        });
        Thread.ofPlatform().start(reader);
        while (!reader.isDone()) {
            try (HugeArena arena = HugeArena.ofConfined(base(MIB))) {
                if (arenas.offer(arena, 10, TimeUnit.MILLISECONDS)) {
                    int before = readings.get();
                    while (readings.get() == before && !reader.isDone()) {
                        Thread.onSpinWait();
                    }
                }
            }
        }
        reader.get();
    }

    @Test
    void coverageIsReadFromTheKernel() {
        try (HugeArena arena = HugeArena.ofShared(base(8 * MIB))) {
            assertThat(arena.coverage()).isInstanceOfSatisfying(Coverage.Known.class, known -> {
                assertThat(known.resident()).isZero();
                assertThat(known).hasToString("nothing resident");
            });
            Pretouched half = arena.pretouch(arena.allocate(4 * MIB), 2);
            assertThat(half.bytes()).isEqualTo(4 * MIB);
            assertThat(resident(arena, 4 * MIB).hugeShare()).isZero();
            assertThat(arena.pretouch().bytes()).isEqualTo(8 * MIB);
            assertThat(resident(arena, 8 * MIB)).asString().contains("0.0 % huge (8MiB on pages of ");
        }
    }

    /// Repeats the reading, because it omits pages that the kernel is migrating for compaction.
    private static Coverage.Known resident(HugeArena arena, long bytes) {
        while (true) {
            var known = (Coverage.Known) arena.coverage();
            if (known.resident() == bytes) {
                return known;
            }
            assertThat(known.resident()).isLessThanOrEqualTo(bytes);
            Thread.onSpinWait();
        }
    }

    @Test
    void aFallbackHasItsCause() {
        var options = HugeOptions.reserve(MIB).prefer(Backing.hugetlb(1L << 40), Backing.base());
        try (HugeArena arena = HugeArena.ofShared(options)) {
            assertThat(arena.backing().backing()).isEqualTo(Backing.base());
            assertThat(arena.backing().isFallback()).isTrue();
            assertThat(arena.backing()).asString().startsWith("base; not hugetlb:1TiB: ").contains("no pool of 1TiB");
        }
    }

    @Test
    void withoutAFallbackTheExceptionHasTheFigures() {
        assumeTrue(Files.exists(Machine.POOL), "no pool of 2 MiB pages");
        var options = HugeOptions.reserve(1L << 45).only(Backing.hugetlb(2 << 20));
        assertThatThrownBy(() -> HugeArena.ofShared(options))
                .isInstanceOfSatisfying(HugeMemoryException.class, error -> {
                    assertThat(error.requested()).isEqualTo(1L << 45);
                    assertThat(error.errno()).isEqualTo(SystemCall.ENOMEM);
                })
                .hasMessageContaining("32TiB could not be reserved: hugetlb:2MiB: ")
                .hasMessageContaining("16777216 wanted, ")
                .hasMessageContaining("hugewise apply --pool 2MiB=+");
    }

    @Test
    void aMissingNodeIsRefused() {
        assertThatThrownBy(() -> HugeArena.ofShared(base(MIB).onNode(1000)))
                .isInstanceOf(HugeMemoryException.class)
                .hasMessageContaining("node 1000");
    }

    @Test
    void coverageIsReadOfAnyMemory() {
        try (Arena jvms = Arena.ofConfined();
                HugeArena arena = HugeArena.ofShared(base(8 * MIB))) {
            MemorySegment all = arena.allocate(8 * MIB);
            assertThat(Coverage.of(all).reserved()).isEqualTo(8 * MIB);
            all.asSlice(0, 2 * MIB).fill((byte) 1);
            assertThat(resident(Coverage.of(all))).isEqualTo(2 * MIB);
            if (Libhugewise.find().isPresent()) {
                assertThat(resident(Coverage.of(all.asSlice(MIB, 4 * MIB)))).isEqualTo(MIB);
                MemorySegment small = jvms.allocate(100_000);
                assertThat(resident(Coverage.of(small))).isGreaterThanOrEqualTo(100_000);
            } else {
                assertThat(Coverage.of(all.asSlice(MIB, 4 * MIB))).asString().contains("a part of a mapping");
            }
            assertThatThrownBy(() -> Coverage.of(MemorySegment.ofArray(new byte[10]))).isInstanceOf(IllegalArgumentException.class);
        }
    }

    private static long resident(Coverage coverage) {
        return ((Coverage.Known) coverage).resident();
    }

    @Test
    void tooFewHugePagesAreAFallbackOrAnException() {
        var strict = HugeOptions.reserve(8 * MIB).only(Backing.base()).requireHuge(0.5);
        assertThatThrownBy(() -> HugeArena.ofShared(strict))
                .isInstanceOfSatisfying(HugeMemoryException.class, error -> assertThat(error.requested()).isEqualTo(8 * MIB))
                .hasMessage("8MiB could not be reserved: base: 0.0 % lies on huge pages after pre-touch, and 50.0 % are required");
        var options = HugeOptions.reserve(8 * MIB).prefer(Backing.base(), Backing.thp()).requireHuge(0.95);
        try (HugeArena arena = HugeArena.ofConfined(options)) {
            assertThat(arena.backing()).asString().startsWith("thp; not base: 0.0 % lies on huge pages");
            assertThat(((Coverage.Known) arena.coverage()).hugeShare()).isGreaterThanOrEqualTo(0.95);
        } catch (HugeMemoryException error) {
            // No huge page is free, or the kernel has none.
            assertThat(error).hasMessageContaining("base: 0.0 % lies on huge pages").hasMessageContaining("thp: ");
        }
        assertThatThrownBy(() -> HugeOptions.reserve(1).requireHuge(1.1)).isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> HugeOptions.reserve(1).requireHuge(Double.NaN)).isInstanceOf(IllegalArgumentException.class);
    }

    @Test
    void basePagesAreCollapsed() {
        try (HugeArena arena = HugeArena.ofShared(HugeOptions.reserve(9 * MIB).prefer(Backing.thp(), Backing.base()))) {
            assumeTrue(arena.backing().backing().equals(Backing.thp()), "no transparent huge pages");
            MemorySegment all = arena.allocate(9 * MIB);
            Advice.advise(all.address(), 9 * MIB, Advice.NOHUGEPAGE);
            for (long at = 0; at < 9 * MIB; at += 8) {
                all.set(JAVA_LONG, at, ~at);
            }
            assertThat(((Coverage.Known) arena.coverage()).hugeShare()).isZero();
            Advice.advise(all.address(), 9 * MIB, Advice.HUGEPAGE);
            Collapsed collapsed = arena.collapse();
            assertThat(collapsed.huge() + collapsed.missed()).isEqualTo(9 * MIB);
            assumeTrue(collapsed.errno() == 0, "errno " + collapsed.errno() + ": no huge page is free, or the kernel is before 6.1");
            assertThat(((Coverage.Known) arena.coverage()).on(arena.backing().pageSize())).isEqualTo(8 * MIB);
            for (long at = 0; at < 9 * MIB; at += 8) {
                assertThat(all.get(JAVA_LONG, at)).isEqualTo(~at);
            }
        }
        try (HugeArena arena = HugeArena.ofShared(base(MIB))) {
            assertThatThrownBy(arena::collapse).hasMessageContaining("only thp can be collapsed");
        }
    }

    @Test
    void memoryIsInterleavedAndNotInCoreDumps() throws Exception {
        var options = base(4 * MIB).named("apart").interleaved().withoutDump().pretouch(1);
        try (HugeArena _ = HugeArena.ofShared(options)) {
            List<String> smaps = Files.readAllLines(Path.of("/proc/self/smaps"));
            int at = smaps.indexOf(smaps.stream().filter(line -> line.endsWith("[anon:hugewise apart]")).findFirst().orElse(""));
            assumeTrue(at >= 0, "a kernel without names");
            String flags = smaps.subList(at, smaps.size()).stream().filter(line -> line.startsWith("VmFlags:")).findFirst().orElseThrow();
            assertThat(flags.split(" ")).contains("dd");
            Path policies = Path.of("/proc/self/numa_maps");
            assumeTrue(Files.exists(policies), "a kernel without NUMA");
            String address = smaps.get(at).substring(0, smaps.get(at).indexOf('-'));
            assertThat(Files.readAllLines(policies)).anyMatch(line -> line.startsWith(address + " interleave"));
        } catch (HugeMemoryException error) {
            assumeTrue(false, error.getMessage());
        }
        assertThat(options).hasToString("apart: 4MiB on base, interleaved, pretouched, not in core dumps");
    }

    @Test
    void theMappingHasTheName() throws Exception {
        try (HugeArena arena = HugeArena.ofShared(base(MIB).named("rows").pretouch(1))) {
            String maps = Files.readString(Path.of("/proc/self/maps"));
            assumeTrue(maps.contains("[anon:"), "a kernel without names");
            assertThat(maps).contains("[anon:hugewise rows]");
            assertThat(arena).hasToString("arena rows of 1MiB");
        }
    }

    @Test
    void onOtherSystemsTheMemoryIsTheJvms() {
        Platform windows = new Platform("Windows 11", "amd64");
        try (HugeArena arena = HugeArena.open(HugeOptions.reserve(MIB).pretouch(), Arena::ofShared, windows)) {
            assertThat(arena.allocate(MIB).get(JAVA_LONG, MIB - 8)).isZero();
            assertThat(arena.backing().fallbacks()).hasSize(2);
            assertThat(arena.backing()).asString().startsWith("base; not hugetlb: libhugewise is for Linux");
            assertThat(arena.coverage()).asString().contains("unknown: ").contains("Windows 11 on amd64");
        }
        var strict = HugeOptions.reserve(MIB).only(Backing.thp());
        assertThatThrownBy(() -> HugeArena.open(strict, Arena::ofShared, windows))
                .isInstanceOf(HugeMemoryException.class)
                .hasMessageContaining("with base pages among the backings");
    }

    @ParameterizedTest
    @ValueSource(strings = {"base", "thp", "hugetlb", "hugetlb:2MiB", "shm:1GiB", "hugetlb:64KiB"})
    void backingsAreParsedAsPrinted(String text) {
        assertThat(Backing.parse(text)).hasToString(text);
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "huge", "base:2MiB", "hugetlb:", "hugetlb:3MiB", "hugetlb:-1", "shm:9999EiB", "hugetlb:x"})
    void invalidBackingsAreRefused(String text) {
        assertThatThrownBy(() -> Backing.parse(text)).isInstanceOf(IllegalArgumentException.class);
    }
}
