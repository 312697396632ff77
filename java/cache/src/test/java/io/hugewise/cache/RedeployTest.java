package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import java.io.File;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import jdk.jfr.Recording;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/// Programs that end, and caches that are dropped, leave nothing.
class RedeployTest {
    private static final int DEPLOYMENTS = 3;
    private static final int DROPPED = 20;
    private static final long SECONDS = 60;

    private static HugeCacheBuilder<Long, byte[]> builder() {
        return HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(4 << 20).memory(options -> options.only(Backing.base()));
    }

    /// Programs of a container, with a copy of the library in each.
    static final class Programs {
        public static void closed() {
            try (var cache = builder().build()) {
                fill(cache);
            }
        }

        public static void dropped() {
            fill(builder().build());
        }

        public static void expiring() {
            fill(builder().expireAfterWrite(Duration.ofMillis(50)).heapEntries(100).build());
        }

        public static void writingBack() {
            fill(builder().writeBack(WriteBack.to(_ -> {})).build());
        }

        public static void loading() {
            try (var cache = builder().loader(key -> new byte[key.intValue()]).build()) {
                fill(cache);
            }
        }

        public static void arena() {
            HugeArena.ofShared(HugeOptions.reserve(4 << 20)).allocate(100);
        }

        public static void allocator() {
            try (var arena = HugeArena.ofShared(HugeOptions.reserve(4 << 20))) {
                var allocator = HugeAllocator.of(arena);
                allocator.freeOffset(allocator.allocateOffset(100));
            }
        }

        private static void fill(HugeCache<Long, byte[]> cache) {
            for (long key = 0; key < 10_000; key++) {
                cache.put(key, new byte[500]);
                cache.getIfPresent(key);
            }
        }
    }

    /// Loads no more classes when its application has been stopped, as that of a servlet container.
    private static final class ApplicationLoader extends URLClassLoader {
        private volatile boolean isStopped;

        ApplicationLoader(URL[] places) {
            super(places, ClassLoader.getPlatformClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (isStopped) {
                throw new ClassNotFoundException(name + " cannot be loaded: the application has been stopped");
            }
            return super.loadClass(name, resolve);
        }

        @Override
        public void close() throws IOException {
            isStopped = true;
            super.close();
        }
    }

    private static WeakReference<ClassLoader> deploy(String program) throws Exception {
        List<URL> places = new ArrayList<>();
        for (Class<?> type : new Class<?>[] {Programs.class, HugeCache.class, HugeArena.class}) {
            places.add(type.getProtectionDomain().getCodeSource().getLocation());
        }
        try (var loader = new ApplicationLoader(places.toArray(URL[]::new))) {
            var method = loader.loadClass(Programs.class.getName()).getDeclaredMethod(program);
            method.setAccessible(true);
            method.invoke(null);
            return new WeakReference<>(loader);
        }
    }

    @ParameterizedTest
    @CsvSource({"closed", "dropped", "expiring", "writingBack", "loading", "arena", "allocator"})
    void theClassLoaderOfAnApplicationIsCollected(String program) throws Exception {
        for (boolean isRecording : new boolean[] {false, true}) {
            try (Recording recording = new Recording()) {
                if (isRecording) {
                    recording.enable("io.hugewise.Cache").with("period", "20 ms");
                    recording.enable("io.hugewise.Coverage").with("period", "20 ms");
                    recording.start();
                }
                List<WeakReference<ClassLoader>> loaders = new ArrayList<>();
                for (int i = 0; i < DEPLOYMENTS; i++) {
                    loaders.add(deploy(program));
                }
                isSoon(() -> loaders.stream().allMatch(loader -> loader.get() == null));
            }
        }
    }

    private interface Condition {
        boolean isMet() throws Exception;
    }

    private static void isSoon(Condition condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!condition.isMet()) {
            assertThat(System.nanoTime()).isLessThan(end);
            System.gc();
            Thread.sleep(20);
        }
    }

    /// A program that drops caches.
    static final class Dropping {
        public static void main(String[] arguments) throws Exception {
            List<WeakReference<HugeCache<?, ?>>> caches = new ArrayList<>();
            for (int i = 0; i < DROPPED; i++) {
                var cache = builder().writeBack(WriteBack.to(_ -> {})).build();
                cache.put(1L, new byte[100]);
                caches.add(new WeakReference<>(cache));
            }
            isSoon(() -> caches.stream().allMatch(cache -> cache.get() == null));
            isSoon(() -> Thread.getAllStackTraces().keySet().stream().noneMatch(thread -> thread.getName().startsWith("hugewise")));
            // The name that the memory has, where the kernel names memory; the library stays loaded.
            isSoon(() -> Files.readString(Path.of("/proc/self/maps")).lines().noneMatch(line -> line.contains("[anon:hugewise")));
            System.out.println("ended");
        }
    }

    @Test
    void cachesThatAreDroppedEndAndAreLogged() throws Exception {
        String path = System.getProperty("jdk.module.path", "") + File.pathSeparator + System.getProperty("java.class.path");
        Process process = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED", "-Xmx256m", "-cp", path, Dropping.class.getName()).redirectErrorStream(true).start();
        List<String> lines = process.inputReader().lines().toList();
        assertThat(process.waitFor()).as(() -> String.join("\n", lines)).isZero();
        assertThat(lines).filteredOn(line -> line.contains("the cache 'cache' was dropped without close()")).hasSize(DROPPED);
        assertThat(lines).last().isEqualTo("ended");
    }

    @Test
    void aViewKeepsItsCacheOpen() throws Exception {
        var view = builder().build().asMap();
        var policy = builder().build().policy();
        for (int i = 0; i < 5; i++) {
            view.put((long) i, new byte[10]);
            System.gc();
            Thread.sleep(20);
        }
        assertThat(view).hasSize(5);
        assertThat(policy.eviction().getMaximum()).isEqualTo(4 << 20);
    }

    @Test
    void closingAgainDoesNothing() {
        var cache = builder().build();
        cache.close();
        cache.close();
        var arena = HugeArena.ofShared(HugeOptions.reserve(4 << 20));
        arena.close();
        arena.close();
        var options = builder();
        options.build().close();
        options.build().close();
    }
}
