package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.hugewise.memory.Backing;
import io.hugewise.memory.internal.Pause;
import java.io.File;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.LongSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/// One thread works for all caches of a JVM: it costs nothing while they are idle, and none holds others up.
@Timeout(value = 600, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class BackgroundTest {
    private static final int CACHES = 100;
    private static final int SKIPPED = 77;

    private static HugeCacheBuilder<Long, byte[]> builder() {
        return HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(4 << 20).memory(options -> options.only(Backing.base()));
    }

    private static long threads() {
        return Thread.getAllStackTraces().keySet().stream().filter(thread -> thread.getName().startsWith("hugewise")).count();
    }

    /// How often threads of the library have been woken that there are.
    private static long wakeUps() throws IOException {
        long sum = 0;
        try (var threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path thread : threads) {
                if (Files.readString(thread.resolve("comm")).startsWith("hugewise")) {
                    String switches = Files.readAllLines(thread.resolve("status")).stream().filter(line -> line.startsWith("voluntary")).findFirst().orElseThrow();
                    sum += Long.parseLong(switches.replaceAll("\\D", ""));
                }
            }
        }
        return sum;
    }

    private static List<String> run(Class<?> program) throws Exception {
        String path = System.getProperty("jdk.module.path", "") + File.pathSeparator + System.getProperty("java.class.path");
        Process process = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", path, program.getName()).redirectErrorStream(true).start();
        List<String> lines = process.inputReader().lines().toList();
        int status = process.waitFor();
        assumeTrue(status != SKIPPED, "this process cannot limit the threads of another one");
        assertThat(status).as(() -> String.join("\n", lines)).isZero();
        return lines;
    }

    // --- Wake-ups ----------------------------------------------------------------------------------

    /// Work that pauses uses up the permit that a wake-up leaves. In most orders, some of the others were looked at before.
    @Test
    void workThatPausesLosesNoWakeUp() throws Exception {
        var begun = new CountDownLatch(1);
        var areWoken = new CountDownLatch(1);
        var pausing = new Maintenance(new Failures(), false, () -> {
            begun.countDown();
            areWoken.await();
            Pause.nanos(1_000_000);
            return Maintenance.NEVER;
        });
        List<CountDownLatch> runs = new ArrayList<>();
        List<Maintenance> others = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            var left = new CountDownLatch(2);
            runs.add(left);
            others.add(new Maintenance(new Failures(), false, () -> {
                left.countDown();
                return Maintenance.NEVER;
            }));
        }
        others.forEach(Maintenance::begin);
        VirtualThreadsTest.await(() -> runs.stream().allMatch(left -> left.getCount() == 1));
        pausing.begin();
        begun.await();
        others.forEach(Maintenance::wake);
        areWoken.countDown();
        VirtualThreadsTest.await(() -> runs.stream().allMatch(left -> left.getCount() == 0));
        others.forEach(Maintenance::close);
        pausing.close();
    }

    // --- Idle caches -------------------------------------------------------------------------------

    /// A process with idle caches of all kinds.
    static final class Idle {
        public static void main(String[] arguments) throws Exception {
            List<HugeCache<Long, byte[]>> caches = new ArrayList<>();
            for (int i = 0; i < CACHES; i++) {
                caches.add(switch (i % 4) {
                    case 0 -> builder().build();
                    case 1 -> builder().expireAfterWrite(Duration.ofHours(1)).removalListener((_, _, _) -> {}).build();
                    case 2 -> builder().expireAfterAccess(Duration.ofHours(1)).heapEntries(10).build();
                    default -> builder().writeBack(WriteBack.<Long, byte[]>to(_ -> {}).window(Duration.ofMillis(100))).build();
                });
            }
            for (var cache : caches) {
                for (long key = 0; key < 10_000; key++) {
                    cache.put(key, new byte[500]);
                }
            }
            VirtualThreadsTest.await(() -> threads() == 1);
            Thread.sleep(1000);
            long before = wakeUps();
            Thread.sleep(3000);
            System.out.println("wake-ups of " + CACHES + " idle caches in 3 s: " + (wakeUps() - before));
            // A change is written by another thread.
            caches.get(3).put(1L, new byte[1]);
            assertThat(threads()).isEqualTo(2);
            VirtualThreadsTest.await(() -> caches.get(3).health().unwrittenChanges() == 0);
            caches.forEach(HugeCache::close);
            VirtualThreadsTest.await(() -> threads() == 0);
            System.out.println("ended");
        }
    }

    @Test
    void idleCachesHaveOneThreadThatSleeps() throws Exception {
        List<String> lines = run(Idle.class);
        System.out.println(lines.getFirst());
        assertThat(lines).last().isEqualTo("ended");
        // Ten for each cache in each second before.
        assertThat(Long.parseLong(lines.getFirst().replaceAll(".*: ", ""))).isLessThanOrEqualTo(3);
    }

    // --- Functions that stall ----------------------------------------------------------------------

    /// A function of the user that the background work of a cache leads to.
    enum Stalling { LISTENER, EXECUTOR, SERIALIZER, STORE, CLOCK, BUSY_CLOCK, CLOCK_IN_PUT }

    private static void stall(CountDownLatch stalled, CountDownLatch end) {
        stalled.countDown();
        try {
            end.await();
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }

    @ParameterizedTest
    @EnumSource
    void aStalledCacheHoldsNoOtherUp(Stalling function) throws Exception {
        var stalled = new CountDownLatch(1);
        var end = new CountDownLatch(1);
        var isStalling = new AtomicReference<>(false);
        LongSupplier clock = () -> {
            if (isStalling.get() && (function != Stalling.CLOCK || Thread.currentThread().isVirtual())) {
                stalled.countDown();
                while (function == Stalling.BUSY_CLOCK && end.getCount() > 0) {
                    Thread.onSpinWait();
                }
                stall(stalled, end);
            }
            return System.nanoTime();
        };
        var options = builder();
        switch (function) {
            case LISTENER -> options.expireAfterWrite(Duration.ofMillis(50)).executor(Runnable::run).removalListener((_, _, _) -> stall(stalled, end));
            case EXECUTOR -> options.expireAfterWrite(Duration.ofMillis(50)).executor(_ -> stall(stalled, end)).removalListener((_, _, _) -> {});
            case SERIALIZER -> options = HugeCache.builder(Serializers.longs(), new StallingBytes(stalled, end)).maximumBytes(4 << 20)
                    .memory(memory -> memory.only(Backing.base())).expireAfterWrite(Duration.ofMillis(50)).executor(Runnable::run).removalListener((_, _, _) -> {});
            case STORE -> options.writeBack(WriteBack.<Long, byte[]>to(_ -> stall(stalled, end)).window(Duration.ofMillis(100)));
            default -> options.ticker(clock).expireAfterWrite(Duration.ofMillis(50));
        }
        Map<Long, RemovalCause> removed = new ConcurrentHashMap<>();
        try (var bad = options.build(); var good = builder().expireAfterWrite(Duration.ofMillis(50)).executor(Runnable::run)
                .removalListener((key, _, cause) -> removed.put(key, cause)).build()) {
            bad.put(1L, new byte[100]);
            isStalling.set(true);
            if (function == Stalling.CLOCK_IN_PUT) {
                Thread.ofPlatform().daemon().start(() -> bad.put(2L, new byte[100]));
            }
            assertThat(stalled.await(60, TimeUnit.SECONDS)).isTrue();
            for (long key = 0; key < 100; key++) {
                good.put(key, new byte[100]);
            }
            VirtualThreadsTest.await(() -> removed.size() == 100);
            assertThat(removed.values()).containsOnly(RemovalCause.EXPIRED);
            isStalling.set(false);
            end.countDown();
        } finally {
            isStalling.set(false);
            end.countDown();
        }
    }

    private record StallingBytes(CountDownLatch stalled, CountDownLatch end) implements Serializer<byte[]> {
        @Override
        public int size(byte[] value) {
            return value.length;
        }

        @Override
        public void write(byte[] value, MemorySegment to) {
            MemorySegment.copy(value, 0, to, ValueLayout.JAVA_BYTE, 0, value.length);
        }

        @Override
        public byte[] read(MemorySegment from) {
            stall(stalled, end);
            return from.toArray(ValueLayout.JAVA_BYTE);
        }
    }

    // --- Threads that the system refuses -----------------------------------------------------------

    /// A process that cannot start threads.
    static final class WithoutThreads {
        public static void main(String[] arguments) {
            Map<Long, byte[]> rows = new ConcurrentHashMap<>();
            // The classes are loaded while it can.
            use(rows);
            limitThreads();
            use(rows);
            use(rows);
            System.out.println("ended");
        }

        private static void use(Map<Long, byte[]> rows) {
            var back = WriteBack.<Long, byte[]>to(changes -> changes.forEach(change -> rows.put(change.key(), change.value())))
                    .window(Duration.ofMillis(100)).patience(Duration.ofSeconds(2));
            try (var cache = builder().expireAfterWrite(Duration.ofMinutes(10)).removalListener((_, _, _) -> {}).build()) {
                for (long key = 0; key < 30_000; key++) {
                    cache.put(key, new byte[500]);
                }
                assertThat(cache.getIfPresent(29_999L)).hasSize(500);
                assertThat(cache.stats().rejections()).isZero();
                System.out.println("background failures " + cache.health().backgroundFailures());
            }
            var cache = builder().writeBack(back).build();
            try {
                cache.put(1L, new byte[1]);
                cache.close();
            } catch (UnwrittenException late) {
                System.out.println("not written, writer failures " + cache.health().writerFailures());
            }
        }

        private static void limitThreads() {
            try (Arena arena = Arena.ofConfined()) {
                int nproc = 6;
                call("setrlimit", nproc, arena.allocate(ValueLayout.JAVA_LONG, 2).address());
                call("setgid", 65534, 0);
                call("setuid", 65534, 0);
            }
        }

        private static void call(String function, long first, long second) {
            try {
                int answer = (int) Linker.nativeLinker().downcallHandle(Linker.nativeLinker().defaultLookup().findOrThrow(function),
                        FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG, ValueLayout.JAVA_LONG)).invokeExact(first, second);
                if (answer != 0) {
                    System.exit(SKIPPED);
                }
            } catch (Throwable error) {
                throw new AssertionError(error);
            }
        }
    }

    @Test
    void cachesWorkWhereNoThreadCanBeStarted() throws Exception {
        assertThat(run(WithoutThreads.class)).contains("background failures 0", "ended");
    }
}
