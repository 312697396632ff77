package io.hugewise.jcache;

import static org.assertj.core.api.Assertions.assertThat;

import java.net.URI;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.IntConsumer;
import javax.cache.Cache;
import javax.cache.CacheManager;
import javax.cache.configuration.FactoryBuilder;
import javax.cache.expiry.AccessedExpiryPolicy;
import javax.cache.integration.CacheLoader;
import javax.cache.integration.CacheWriter;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/// Stack overflows at random depths of each operation: other threads go on, and the cache has what the backend has.
@Timeout(value = 1800, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class OverflowTest {
    private static final Duration LONG = Duration.ofSeconds(120);
    /// Of each operation, with and without a backend; 0: one, with or without.
    private static final int OVERFLOWS = Integer.getInteger("hugewise.overflows", 0);
    private static final int STACK_BYTES = 256 << 10;
    private static final int KEYS = 200;
    private static final Map<Integer, String> ROWS = new ConcurrentHashMap<>();

    /// A backend on the heap.
    public static final class Rows implements CacheLoader<Integer, String>, CacheWriter<Integer, String>, java.io.Serializable {
        private static final long serialVersionUID = 1;

        @Override
        public String load(Integer key) {
            return ROWS.get(key);
        }

        @Override
        public Map<Integer, String> loadAll(Iterable<? extends Integer> keys) {
            Map<Integer, String> all = new LinkedHashMap<>();
            keys.forEach(key -> {
                String row = ROWS.get(key);
                if (row != null) {
                    all.put(key, row);
                }
            });
            return all;
        }

        @Override
        public void write(Cache.Entry<? extends Integer, ? extends String> entry) {
            ROWS.put(entry.getKey(), entry.getValue());
        }

        @Override
        public void writeAll(Collection<Cache.Entry<? extends Integer, ? extends String>> entries) {
            for (var entries_ = entries.iterator(); entries_.hasNext(); ) {
                write(entries_.next());
                entries_.remove();
            }
        }

        @Override
        public void delete(Object key) {
            ROWS.remove(key);
        }

        @Override
        public void deleteAll(Collection<?> keys) {
            for (var keys_ = keys.iterator(); keys_.hasNext(); ) {
                delete(keys_.next());
                keys_.remove();
            }
        }
    }

    private static String value(int number) {
        return "value " + number % 7;
    }

    private static Map<String, IntConsumer> operations(Cache<Integer, String> cache) {
        Map<String, IntConsumer> all = new LinkedHashMap<>();
        all.put("get", key -> cache.get(key));
        all.put("getAll", key -> cache.getAll(Set.of(key, key + 1)));
        all.put("containsKey", key -> cache.containsKey(key));
        all.put("put", key -> cache.put(key, value(key)));
        all.put("getAndPut", key -> cache.getAndPut(key, value(key + 1)));
        all.put("putAll", key -> cache.putAll(Map.of(key, value(key), key + 1, value(key))));
        all.put("putIfAbsent", key -> cache.putIfAbsent(key, value(key)));
        all.put("remove", key -> cache.remove(key));
        all.put("remove of a value", key -> cache.remove(key, value(key)));
        all.put("getAndRemove", key -> cache.getAndRemove(key));
        all.put("replace", key -> cache.replace(key, value(key + 2)));
        all.put("replace of a value", key -> cache.replace(key, value(key), value(key + 1)));
        all.put("getAndReplace", key -> cache.getAndReplace(key, value(key + 2)));
        all.put("removeAll", key -> cache.removeAll(Set.of(key, key + 1)));
        all.put("loadAll", key -> cache.loadAll(Set.of(key), true, null));
        all.put("invoke", key -> cache.invoke(key, (entry, _) -> {
            entry.setValue(value(entry.getKey()));
            return entry.exists();
        }));
        all.put("invokeAll", key -> cache.invokeAll(Set.of(key, key + 1), (entry, _) -> {
            entry.remove();
            return 1;
        }));
        all.put("iterate", _ -> {
            var entries = cache.iterator();
            if (entries.hasNext()) {
                entries.next();
                entries.remove();
            }
        });
        all.put("isClosed", _ -> cache.isClosed());
        return all;
    }

    private static long deeper(IntConsumer operation, int number, int stride) {
        if (number % stride == 0) {
            operation.accept(number % KEYS);
        }
        return 1 + deeper(operation, number + 1, stride);
    }

    private static void run(String name, Thread thread) throws InterruptedException {
        thread.setDaemon(true);
        thread.start();
        assertThat(thread.join(LONG)).as("%s: %s", name, Arrays.toString(thread.getStackTrace())).isTrue();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void otherThreadsGoOn(boolean hasBackend) throws Exception {
        var random = new Random(1);
        ROWS.clear();
        try (var provider = new HugeCachingProvider();
                CacheManager manager = provider.getCacheManager(URI.create("overflows:" + hasBackend), null, null)) {
            var configuration = new HugeConfiguration<Integer, String>();
            configuration.setTypes(Integer.class, String.class).setStatisticsEnabled(true);
            if (hasBackend) {
                configuration.setReadThrough(true).setWriteThrough(true).setCacheLoaderFactory(FactoryBuilder.factoryOf(new Rows()))
                        .setCacheWriterFactory(FactoryBuilder.factoryOf(new Rows()));
            } else {
                configuration.setExpiryPolicyFactory(AccessedExpiryPolicy.factoryOf(new javax.cache.expiry.Duration(java.util.concurrent.TimeUnit.DAYS, 1)));
            }
            Cache<Integer, String> cache = manager.createCache("rows", configuration);
            boolean isTried = hasBackend;
            for (int i = 0; i < Math.max(1, OVERFLOWS); i++) {
                for (var operation : operations(cache).entrySet()) {
                    isTried = OVERFLOWS > 0 || !isTried;
                    if (!isTried) {
                        continue;
                    }
                    int stride = 1 + random.nextInt(16);
                    int first = random.nextInt(KEYS);
                    run(operation.getKey(), new Thread(null, () -> {
                        try {
                            deeper(operation.getValue(), first, stride);
                        } catch (StackOverflowError _) {
                            // As it should.
                        }
                    }, "overflowing", STACK_BYTES + random.nextInt(32) * 4096));
                    run(operation.getKey(), new Thread(() -> {
                        for (int key = 0; key <= KEYS; key++) {
                            cache.put(key, value(key));
                        }
                    }));
                }
            }
            for (int key : List.of(1, 2, 3)) {
                cache.put(key, "last");
            }
            if (hasBackend) {
                cache.forEach(entry -> assertThat(entry.getValue()).isEqualTo(ROWS.get(entry.getKey())));
            }
            assertThat(cache.get(2)).isEqualTo("last");
            cache.clear();
            assertThat(cache.iterator().hasNext()).isFalse();
        }
    }
}
