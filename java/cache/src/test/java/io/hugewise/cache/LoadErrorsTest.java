package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/// Loads and changes in which the heap has no memory: at the first call of a method of a key or its serializer, at the second
/// one, and so on. None stays under way.
class LoadErrorsTest {
    private static final List<Key> KEYS = List.of(new Key(1), new Key(2), new Key(3));

    /// Calls until one fails; negative for none.
    private static int left = -1;

    private static void call() {
        if (left >= 0 && left-- == 0) {
            throw new OutOfMemoryError("of a test");
        }
    }

    /// A key whose methods may fail: maps of keys call them when they grow, or are searched.
    private record Key(long number) {
        @Override
        public int hashCode() {
            call();
            return Long.hashCode(number);
        }

        @Override
        public boolean equals(Object other) {
            call();
            return other instanceof Key key && key.number == number;
        }
    }

    private static final Serializer<Key> SERIALIZER = new Serializer<>() {
        @Override
        public int size(Key key) {
            call();
            return Long.BYTES;
        }

        @Override
        public void write(Key key, MemorySegment to) {
            call();
            to.set(ValueLayout.JAVA_LONG_UNALIGNED, 0, key.number);
        }

        @Override
        public Key read(MemorySegment from) {
            call();
            return new Key(from.get(ValueLayout.JAVA_LONG_UNALIGNED, 0));
        }
    };

    private static Map<Key, Key> load(Set<? extends Key> keys) {
        call();
        var values = new LinkedHashMap<Key, Key>();
        keys.forEach(key -> values.put(key, key));
        return values;
    }

    private static Key load(Key key) {
        call();
        return key;
    }

    enum Operation {
        GET(cache -> cache.get(KEYS.getFirst(), LoadErrorsTest::load)),
        GET_ALL(cache -> cache.getAll(KEYS, keys -> load(keys))),
        GET_ALL_ONE_BY_ONE(cache -> cache.getAll(KEYS)),
        REFRESH(cache -> KEYS.forEach(cache::refresh)),
        COMPUTE(cache -> cache.asMap().compute(KEYS.getFirst(), (key, _) -> load(key))),
        COMPUTE_IF_ABSENT(cache -> cache.asMap().computeIfAbsent(KEYS.getFirst(), LoadErrorsTest::load)),
        MERGE(cache -> cache.asMap().merge(KEYS.getFirst(), KEYS.getFirst(), (_, key) -> load(key))),
        PUT_ALL(cache -> KEYS.forEach(key -> cache.put(key, key)));

        final Consumer<HugeCache<Key, Key>> call;

        Operation(Consumer<HugeCache<Key, Key>> call) {
            this.call = call;
        }
    }

    @ParameterizedTest
    @EnumSource
    @Timeout(value = 2, unit = TimeUnit.MINUTES, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
    void noneStaysUnderWay(Operation operation) throws Exception {
        int errors = 0;
        for (boolean isDone = false; !isDone; errors++) {
            try (var cache = HugeCache.builder(SERIALIZER, SERIALIZER).maximumBytes(4 << 20).executor(Runnable::run).loader(LoadErrorsTest::load).build()) {
                left = errors;
                try {
                    operation.call.accept(cache);
                } catch (OutOfMemoryError | CompletionException _) {
                    // As the function that failed.
                }
                isDone = left >= 0;
                left = -1;
                // Neither by this thread nor by another one.
                assertThat(cache.getAll(KEYS)).hasSize(KEYS.size());
                assertThat(CompletableFuture.supplyAsync(() -> {
                    for (Key key : KEYS) {
                        cache.invalidate(key);
                        cache.asMap().compute(key, (_, _) -> key);
                        cache.refresh(key).join();
                    }
                    return cache.getAll(KEYS, keys -> load(keys));
                }).get()).hasSize(KEYS.size());
            }
        }
        assertThat(errors).isGreaterThan(3);
    }
}
