package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.cache.Fault.Function;
import io.hugewise.cache.Fault.Kind;
import io.hugewise.cache.Operations.Operation;
import io.hugewise.memory.Backing;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/// Each function of a cache's user that fails, stalls, uses the cache or interrupts its thread, in each operation: the
/// operation ends, other threads go on with the same key and with others, and the cache has nothing that the store does not
/// have.
class FunctionsTest {
    private static final long LONG_SECONDS = 120;
    private static final boolean IS_WHOLE = Boolean.getBoolean("hugewise.matrix");
    /// Each so-many-th fault is tried, in each so-many-th operation: all functions, kinds and stores.
    private static final int FAULTS_PART = IS_WHOLE ? 1 : 12;
    private static final int PART = IS_WHOLE ? 1 : 9;

    enum Stored { NOT, THROUGH, BEHIND }

    @TestFactory
    Stream<DynamicTest> functions() {
        return Arrays.stream(Stored.values()).flatMap(stored -> Arrays.stream(Function.values()).flatMap(function -> Arrays.stream(Kind.values())
                .filter(_ -> stored == Stored.BEHIND || function != Function.ORDER)
                .filter(_ -> stored != Stored.NOT || function != Function.STORE)
                .filter(kind -> (3 * stored.ordinal() + function.ordinal() + kind.ordinal()) % FAULTS_PART == 0)
                .map(kind -> DynamicTest.dynamicTest(stored + " " + function + " " + kind, () -> new Case(stored, function, kind).run()))));
    }

    /// A fault of one function, in a cache of its own.
    private static final class Case {
        private final Stored stored;
        private final Kind kind;
        private final int number;
        private final Function function;
        private final Fault fault;
        private final Map<Long, byte[]> rows = new ConcurrentHashMap<>();
        private final AtomicLong now = new AtomicLong();
        private volatile String operation = "";

        Case(Stored stored, Function function, Kind kind) {
            this.stored = stored;
            this.function = function;
            this.kind = kind;
            this.fault = new Fault(function, kind);
            this.number = (stored.ordinal() * 31 + function.ordinal()) * 31 + kind.ordinal();
        }

        private byte[] row(Long key) {
            return stored == Stored.NOT ? Operations.value(key) : rows.get(key);
        }

        private HugeCacheBuilder<Long, byte[]> builder() {
            var builder = HugeCache.builder(fault.serializer(Serializers.longs(), null, Function.KEY_WRITE, Function.KEY_READ),
                    fault.serializer(Serializers.bytes(), Function.SIZE, Function.WRITE, Function.READ)).maximumBytes(4 << 20)
                    .memory(options -> options.only(Backing.base()))
                    .ticker(() -> {
                        fault.at(Function.TICKER);
                        return now.get();
                    }).loader(new CacheLoader<Long, byte[]>() {
                        @Override
                        public byte[] load(Long key) {
                            fault.at(Function.LOADER);
                            return row(key);
                        }

                        @Override
                        public Map<Long, byte[]> loadAll(Set<? extends Long> keys) {
                            fault.at(Function.BULK_LOADER);
                            Map<Long, byte[]> all = new LinkedHashMap<>();
                            keys.stream().filter(key -> row(key) != null).forEach(key -> all.put(key, row(key)));
                            return all;
                        }

                        @Override
                        public byte[] reload(Long key, byte[] old) {
                            fault.at(Function.RELOADER);
                            return row(key);
                        }
                    }).refreshAfterWrite(Duration.ofSeconds(1)).removalListener((_, _, _) -> fault.at(Function.LISTENER)).executor(task -> {
                        fault.at(Function.EXECUTOR);
                        task.run();
                    });
            switch (stored) {
                case NOT -> {}
                case THROUGH -> builder.writeThrough(this::write);
                case BEHIND -> builder.writeBack(WriteBack.<Long, byte[]>to(this::write).window(Duration.ofMillis(kind == Kind.STALL ? 3_600_000 : 20)).patience(Duration.ofSeconds(LONG_SECONDS))
                        .ordered((one, other) -> {
                            fault.at(Function.ORDER);
                            return Long.compare(one, other);
                        }));
            }
            return function == Function.WEIGHER ? builder.expireAfterWrite(Operations.DAY).heapWeight(1000, _ -> {
                fault.at(Function.WEIGHER);
                return 1;
            }) : builder.expireAfter(new Expiry<Long, byte[]>() {
                @Override
                public Duration expireAfterCreate(Long key, byte[] value) {
                    fault.at(Function.EXPIRY);
                    return Operations.DAY;
                }

                @Override
                public Duration expireAfterUpdate(Long key, byte[] value, Duration remaining) {
                    fault.at(Function.EXPIRY);
                    return Operations.DAY;
                }

                @Override
                public Duration expireAfterRead(Long key, byte[] value, Duration remaining) {
                    fault.at(Function.EXPIRY);
                    return remaining;
                }
            });
        }

        private void write(Iterable<CacheWriter.Change<Long, byte[]>> changes) {
            fault.at(Function.STORE);
            changes.forEach(change -> {
                byte[] value = change.value();
                if (value == null) {
                    rows.remove(change.key());
                } else {
                    rows.put(change.key(), value);
                }
            });
        }

        /// All operations, with functions that may be the fault.
        private Map<String, Operation> operations() {
            Map<String, Operation> all = Operations.ofKeys(true, true);
            all.put("read", (cache, key) -> cache.read(key, memory -> {
                fault.at(Function.CALLED);
                return memory.byteSize();
            }));
            all.put("get", (cache, key) -> cache.get(key, of -> {
                fault.at(Function.CALLED);
                return row(of);
            }));
            all.put("getAll", (cache, key) -> cache.getAll(Set.of(key, key + 1), _ -> {
                fault.at(Function.CALLED);
                return Map.of();
            }));
            all.put("map compute", (cache, key) -> cache.asMap().compute(key, (of, _) -> {
                fault.at(Function.CALLED);
                return Operations.value(of);
            }));
            all.put("map computeIfAbsent", (cache, key) -> cache.asMap().computeIfAbsent(key, of -> {
                fault.at(Function.CALLED);
                return Operations.value(of);
            }));
            all.put("map merge", (cache, key) -> cache.asMap().merge(key, Operations.value(key), (_, value) -> {
                fault.at(Function.CALLED);
                return value;
            }));
            all.putAll(Operations.ofCache());
            return all;
        }

        void run() throws Exception {
            // A cache that hangs could not be closed.
            @SuppressWarnings("resource")
            HugeCache<Long, byte[]> cache = builder().build();
            fault.cache = cache;
            inAnotherThread("all", () -> {
                tryAll(cache);
                return null;
            });
            inAnotherThread("flush", () -> {
                cache.flush();
                return null;
            });
            if (stored == Stored.BEHIND) {
                assertThat(cache.asMap().keySet()).isEqualTo(rows.keySet());
            }
            if (stored != Stored.NOT) {
                cache.asMap().forEach((key, value) -> assertThat(rows.get(key)).as("%d", key).isEqualTo(value));
            }
            assertThat(cache.asMap().keySet().stream().count()).isEqualTo(cache.estimatedSize());
            if (function != Function.TICKER) {
                assertThat(cache.health().backgroundFailures()).isZero();
            }
            inAnotherThread("close", () -> {
                cache.invalidateAll();
                cache.cleanUp();
                assertThat(cache.estimatedSize()).isZero();
                cache.close();
                return null;
            });
        }

        private void inAnotherThread(String name, Callable<Void> work) throws Exception {
            var task = new FutureTask<>(work);
            Thread thread = Thread.ofPlatform().daemon().start(task);
            try {
                task.get(LONG_SECONDS, TimeUnit.SECONDS);
            } catch (java.util.concurrent.TimeoutException _) {
                throw new AssertionError(name + " hangs after " + operation + ": " + Arrays.toString(thread.getStackTrace()));
            } finally {
                fault.disarm();
            }
        }

        private void tryAll(HugeCache<Long, byte[]> cache) throws Exception {
            int turn = number;
            long key = 0;
            for (var entry : operations().entrySet()) {
                for (boolean isPresent : new boolean[] {true, false}) {
                    if (turn++ % PART == 0) {
                        key += 10;
                        operation = entry.getKey() + (isPresent ? " of a present key" : " of an absent key");
                        tryOne(cache, entry.getValue(), key, isPresent);
                    }
                }
            }
        }

        private void tryOne(HugeCache<Long, byte[]> cache, Operation tried, long key, boolean isPresent) throws Exception {
            if (isPresent) {
                cache.put(key, new byte[] {1});
                // Old enough to be loaded again.
                now.addAndGet(Duration.ofSeconds(2).toNanos());
            }
            fault.arm(key);
            if (kind == Kind.STALL) {
                stall(cache, tried, key);
            } else {
                call(cache, tried, key);
            }
            fault.disarm();
            inAnotherThread(operation, () -> {
                byte[] value = cache.asMap().get(key);
                if (stored == Stored.THROUGH && value != null) {
                    assertThat(rows.get(key)).as(operation).isEqualTo(value);
                }
                use(cache, key, true);
                return null;
            });
        }

        private static void call(HugeCache<Long, byte[]> cache, Operation tried, long key) {
            try {
                tried.run(cache, key);
            } catch (Throwable _) {
                // That of the fault, or what an operation makes of it.
            } finally {
                Thread.interrupted();
            }
        }

        private void stall(HugeCache<Long, byte[]> cache, Operation tried, long key) throws Exception {
            Thread stalled = Thread.ofVirtual().start(() -> call(cache, tried, key));
            while (stalled.isAlive() && fault.begun.getCount() > 0) {
                stalled.join(Duration.ofMillis(1));
            }
            if (stalled.isAlive()) {
                var others = new FutureTask<>(() -> {
                    // A load waits for the store, which may be what stalls.
                    use(cache, key + 5, stored != Stored.BEHIND);
                    return null;
                });
                Thread.ofPlatform().daemon().start(others);
                others.get(LONG_SECONDS, TimeUnit.SECONDS);
            }
            fault.disarm();
            stalled.join();
        }

        private void use(HugeCache<Long, byte[]> cache, long key, boolean doesLoad) {
            byte[] value = Operations.value(key);
            cache.put(key, value);
            assertThat(cache.getIfPresent(key)).as(operation).isEqualTo(value);
            cache.asMap().compute(key, (_, old) -> old);
            cache.invalidate(key);
            assertThat(cache.asMap().containsKey(key)).as(operation).isFalse();
            if (doesLoad) {
                cache.get(key, this::row);
                cache.refresh(key).join();
            }
            cache.asMap().computeIfAbsent(key, Operations::value);
            assertThat(cache.asMap().get(key)).as(operation).isEqualTo(value);
        }
    }
}
