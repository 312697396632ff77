package io.hugewise.cache;

import com.google.common.collect.testing.ConcurrentMapTestSuiteBuilder;
import com.google.common.collect.testing.TestStringMapGenerator;
import com.google.common.collect.testing.features.CollectionFeature;
import com.google.common.collect.testing.features.CollectionSize;
import com.google.common.collect.testing.features.MapFeature;
import io.hugewise.memory.Backing;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import junit.framework.Test;
import junit.framework.TestResult;
import junit.framework.TestSuite;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.DynamicContainer;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/// Guava's tests of maps, for the view of caches of all kinds.
class GuavaMapTest {
    private static final Path SHM = Path.of("/dev/shm");
    private static final List<AutoCloseable> OPEN = new ArrayList<>();

    /// Strings with a byte before them that differs: equal values have different bytes.
    private static final class Varying implements Serializer<String> {
        private int count;

        @Override
        public int size(String value) {
            return 1 + Serializers.strings().size(value);
        }

        @Override
        public void write(String value, MemorySegment to) {
            to.set(java.lang.foreign.ValueLayout.JAVA_BYTE, 0, (byte) count++);
            Serializers.strings().write(value, to.asSlice(1));
        }

        @Override
        public String read(MemorySegment from) {
            return Serializers.strings().read(from.asSlice(1));
        }
    }

    private static Map<String, UnaryOperator<HugeCacheBuilder<String, String>>> kinds() throws IOException {
        Map<String, UnaryOperator<HugeCacheBuilder<String, String>>> kinds = new LinkedHashMap<>();
        kinds.put("plain", builder -> builder);
        kinds.put("heap tier", builder -> builder.heapEntries(100));
        kinds.put("expiry after write", builder -> builder.expireAfterWrite(Duration.ofHours(1)));
        kinds.put("expiry after access", builder -> builder.expireAfterAccess(Duration.ofHours(1)));
        kinds.put("expiry after both", builder -> builder.expireAfterWrite(Duration.ofHours(1)).expireAfterAccess(Duration.ofHours(1)));
        kinds.put("variable expiry", HugeCacheBuilder::variableExpiry);
        kinds.put("determined expiry", builder -> builder.expireAfter(new Hours()));
        kinds.put("write through", builder -> builder.writeThrough(_ -> {}));
        kinds.put("write back", builder -> builder.writeBack(WriteBack.to(_ -> {})));
        if (Files.isWritable(SHM) && Files.getFileStore(SHM).type().equals("tmpfs")) {
            Path file = Files.createTempFile(SHM, "hugewise-test-", "");
            Files.delete(file);
            OPEN.add(() -> Files.delete(file));
            kinds.put("file", builder -> builder.file(file));
        }
        return kinds;
    }

    private static final class Hours implements Expiry<String, String> {
        @Override
        public Duration expireAfterCreate(String key, String value) {
            return Duration.ofHours(1);
        }

        @Override
        public Duration expireAfterUpdate(String key, String value, Duration remaining) {
            return Duration.ofHours(2);
        }

        @Override
        public Duration expireAfterRead(String key, String value, Duration remaining) {
            return remaining;
        }
    }

    @AfterAll
    static void close() throws Exception {
        Collections.reverse(OPEN);
        for (AutoCloseable open : OPEN) {
            open.close();
        }
    }

    private static HugeCache<String, String> cache(Serializer<String> values, UnaryOperator<HugeCacheBuilder<String, String>> kind) {
        var cache = kind.apply(HugeCache.builder(Serializers.strings(), values).maximumBytes(4 << 20)
                .memory(options -> options.only(Backing.base()))).build();
        OPEN.add(cache);
        return cache;
    }

    @TestFactory
    List<DynamicContainer> aCacheIsAConcurrentMap() throws IOException {
        List<DynamicContainer> all = new ArrayList<>();
        kinds().forEach((name, kind) -> all.add(container(name, cache(Serializers.strings(), kind))));
        all.add(container("equal values of different bytes", cache(new Varying(), builder -> builder)));
        all.add(container("equal values of different bytes, written back",
                cache(new Varying(), builder -> builder.writeBack(WriteBack.to(_ -> {})))));
        return all;
    }

    /// All tests use the same cache, one after another.
    private static DynamicContainer container(String name, HugeCache<String, String> cache) {
        TestSuite suite = ConcurrentMapTestSuiteBuilder.using(new TestStringMapGenerator() {
            @Override
            protected Map<String, String> create(Map.Entry<String, String>[] entries) {
                Map<String, String> map = cache.asMap();
                map.clear();
                for (Map.Entry<String, String> entry : entries) {
                    map.put(entry.getKey(), entry.getValue());
                }
                return map;
            }
        }).named(name).withFeatures(MapFeature.GENERAL_PURPOSE, CollectionSize.ANY, CollectionFeature.SUPPORTS_ITERATOR_REMOVE).createTestSuite();
        List<DynamicTest> tests = new ArrayList<>();
        collect(suite, tests);
        return DynamicContainer.dynamicContainer(name + ", " + tests.size() + " tests", tests);
    }

    private static void collect(Test test, List<DynamicTest> tests) {
        if (test instanceof TestSuite suite) {
            Collections.list(suite.tests()).forEach(inner -> collect(inner, tests));
        } else {
            tests.add(DynamicTest.dynamicTest(test.toString(), () -> run(test)));
        }
    }

    private static void run(Test test) throws Throwable {
        TestResult result = new TestResult();
        test.run(result);
        for (var failures : List.of(result.errors(), result.failures())) {
            if (failures.hasMoreElements()) {
                throw failures.nextElement().thrownException();
            }
        }
    }
}
