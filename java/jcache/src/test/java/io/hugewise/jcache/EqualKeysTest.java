package io.hugewise.jcache;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.Serializable;
import java.math.BigDecimal;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.Vector;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import javax.cache.Cache;
import javax.cache.CacheException;
import javax.cache.CacheManager;
import javax.cache.Caching;
import javax.cache.configuration.MutableConfiguration;
import javax.cache.integration.CacheLoader;
import javax.cache.integration.CacheWriter;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/// Keys that are equal are one key, whatever their bytes; and values that are too large.
@Tag("pools")
class EqualKeysTest {
    private static final int MIB = 1 << 20;

    private record Two(Object one, Object other) implements Serializable {}

    /// All of them have the same hash code.
    private record Colliding(int number) implements Serializable {
        @Override
        public int hashCode() {
            return 7;
        }
    }

    private final CacheManager manager = Caching.getCachingProvider().getCacheManager(URI.create("hugewise:keys"), null, new Properties());

    @AfterEach
    void close() {
        manager.close();
    }

    private Cache<Object, String> cache() {
        return manager.createCache("keys", new MutableConfiguration<Object, String>().setTypes(Object.class, String.class));
    }

    static Stream<Arguments> equalKeys() {
        String text = "same";
        Map<String, Integer> backwards = new LinkedHashMap<>();
        backwards.put("b", 2);
        backwards.put("a", 1);
        return Stream.of(
                Arguments.of(List.of("a", "b"), new ArrayList<>(List.of("a", "b"))),
                Arguments.of(new Vector<>(List.of(1)), new LinkedList<>(List.of(1))),
                Arguments.of(List.of(), Collections.EMPTY_LIST),
                Arguments.of(Set.of("a", "b", "c"), new HashSet<>(List.of("c", "b", "a"))),
                Arguments.of(new LinkedHashSet<>(List.of("Aa", "BB")), new LinkedHashSet<>(List.of("BB", "Aa"))),
                Arguments.of(Map.of("k", 1), new HashMap<>(Map.of("k", 1))),
                Arguments.of(new TreeMap<>(Map.of("a", 1, "b", 2)), backwards),
                Arguments.of(new Two(text, text), new Two(text, new String(text))),
                Arguments.of(new Two(List.of(1), 2), new Two(new ArrayList<>(List.of(1)), 2)),
                Arguments.of(new BigDecimal("1.5"), BigDecimal.valueOf(15, 1)),
                Arguments.of("text", new String("text")),
                Arguments.of("\uD83D\uDE00", new String("\uD83D\uDE00")));
    }

    @ParameterizedTest
    @MethodSource("equalKeys")
    void anEqualKeyFindsReplacesAndRemovesTheEntry(Object one, Object other) {
        assertThat(one).isEqualTo(other);
        Cache<Object, String> cache = cache();
        cache.put(one, "first");
        assertThat(cache.get(other)).isEqualTo("first");
        assertThat(cache.containsKey(other)).isTrue();
        assertThat(cache.putIfAbsent(other, "second")).isFalse();
        assertThat(cache.getAndPut(other, "third")).isEqualTo("first");
        assertThat(cache.getAll(Set.of(other))).containsEntry(other, "third");
        cache.putAll(Map.of(one, "fourth"));
        assertThat(cache.<String>invoke(other, (entry, _) -> entry.getValue())).isEqualTo("fourth");
        assertThat(cache).hasSize(1).first().extracting(Cache.Entry::getKey).isEqualTo(one);
        assertThat(cache.remove(other)).isTrue();
        assertThat(cache.get(one)).isNull();
        cache.put(one, "fifth");
        cache.removeAll(Set.of(other));
        assertThat(cache.containsKey(one)).isFalse();
        cache.put(other, "sixth");
        cache.removeAll();
        assertThat(cache.containsKey(one)).isFalse();
    }

    @Test
    void keysOfTheSameHashCodeAreDifferentKeys() {
        Cache<Object, String> cache = cache();
        for (int number = 0; number < 8; number++) {
            cache.put(new Colliding(number), "" + number);
        }
        for (int number = 0; number < 8; number++) {
            assertThat(cache.get(new Colliding(number))).isEqualTo("" + number);
        }
        assertThat(cache.get(new Colliding(8))).isNull();
        assertThat(cache.remove(new Colliding(3))).isTrue();
        for (int number = 0; number < 100; number++) {
            cache.put(new Colliding(number), "" + number);
            assertThat(cache.get(new Colliding(number))).isEqualTo("" + number);
            assertThat(cache.containsKey(new Colliding(100))).isFalse();
        }
        for (Cache.Entry<Object, String> entry : cache) {
            assertThat(entry.getKey()).isEqualTo(new Colliding(Integer.parseInt(entry.getValue())));
        }
    }

    private Cache<Integer, byte[]> small(MutableConfiguration<Integer, byte[]> configuration) {
        return manager.createCache("small", new HugeConfiguration<>(configuration).setMaximumBytes(4 * MIB));
    }

    @Test
    void aValueThatIsTooLargeIsAnExceptionAndTheOldOneStays() {
        Cache<Integer, byte[]> cache = small(new MutableConfiguration<>());
        cache.put(1, new byte[100]);
        assertThatThrownBy(() -> cache.put(1, new byte[3 * MIB])).isInstanceOf(CacheException.class).hasMessageContaining("too many");
        assertThatThrownBy(() -> cache.getAndPut(1, new byte[3 * MIB])).isInstanceOf(CacheException.class);
        assertThatThrownBy(() -> cache.replace(1, new byte[3 * MIB])).isInstanceOf(CacheException.class);
        assertThatThrownBy(() -> cache.putIfAbsent(2, new byte[3 * MIB])).isInstanceOf(CacheException.class);
        assertThatThrownBy(() -> cache.putAll(Map.of(2, new byte[1], 1, new byte[3 * MIB]))).isInstanceOf(CacheException.class);
        assertThatThrownBy(() -> cache.invoke(1, (entry, _) -> {
            entry.setValue(new byte[3 * MIB]);
            return null;
        })).isInstanceOf(CacheException.class);
        assertThat(cache.get(1)).hasSize(100);
        assertThat(cache.containsKey(2)).isFalse();
    }

    @Test
    void aValueThatIsTooLargeIsNotWrittenThrough() {
        var writes = new AtomicInteger();
        Cache<Integer, byte[]> cache = small(new MutableConfiguration<Integer, byte[]>().setWriteThrough(true).setCacheWriterFactory(() -> new CacheWriter<>() {
            @Override
            public void write(Cache.Entry<? extends Integer, ? extends byte[]> entry) {
                writes.incrementAndGet();
            }

            @Override
            public void writeAll(java.util.Collection<Cache.Entry<? extends Integer, ? extends byte[]>> entries) {
                writes.addAndGet(entries.size());
                entries.clear();
            }

            @Override
            public void delete(Object key) {}

            @Override
            public void deleteAll(java.util.Collection<?> keys) {}
        }));
        assertThatThrownBy(() -> cache.put(1, new byte[3 * MIB])).isInstanceOf(CacheException.class);
        assertThatThrownBy(() -> cache.putAll(Map.of(1, new byte[3 * MIB]))).isInstanceOf(CacheException.class);
        assertThat(writes).hasValue(0);
        cache.put(1, new byte[1]);
        assertThat(writes).hasValue(1);
    }

    @Test
    void aLoadedValueThatIsTooLargeIsReturned() {
        Cache<Integer, byte[]> cache = small(new MutableConfiguration<Integer, byte[]>().setReadThrough(true).setCacheLoaderFactory(() -> new CacheLoader<>() {
            @Override
            public byte[] load(Integer key) {
                return new byte[3 * MIB];
            }

            @Override
            public Map<Integer, byte[]> loadAll(Iterable<? extends Integer> keys) {
                Map<Integer, byte[]> loaded = new HashMap<>();
                keys.forEach(key -> loaded.put(key, new byte[3 * MIB]));
                return loaded;
            }
        }));
        assertThat(cache.get(1)).hasSize(3 * MIB);
        assertThat(cache.getAll(Set.of(1, 2))).hasSize(2);
        assertThat(cache.containsKey(1)).isFalse();
    }
}
