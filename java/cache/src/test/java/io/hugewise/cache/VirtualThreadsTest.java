package io.hugewise.cache;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.memory.internal.Pause;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;

/// Virtual threads that wait for one without a carrier must leave it theirs.
class VirtualThreadsTest {
    /// Much longer than any of these waits takes.
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final int CARRIERS = Runtime.getRuntime().availableProcessors();

    static void await(BooleanSupplier condition) throws InterruptedException {
        for (long end = System.nanoTime() + LONG.toNanos(); !condition.getAsBoolean() && System.nanoTime() < end; ) {
            Thread.sleep(1);
        }
        assertThat(condition.getAsBoolean()).isTrue();
    }

    private static Object field(Object of, String name) throws ReflectiveOperationException {
        var field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    private static int oddStripe(AtomicIntegerArray versions) {
        for (int stripe = 0; stripe < versions.length(); stripe++) {
            if ((versions.get(stripe) & 1) != 0) {
                return stripe;
            }
        }
        return -1;
    }

    @Test
    void readersLeaveTheirCarriersToAWriter() throws Exception {
        try (var cache = HugeCacheTest.small().build()) {
            for (long key = 0; key < 20_000; key++) {
                cache.put(key, new byte[1]);
            }
            Index index = cache.store().index;
            var versions = (AtomicIntegerArray) field(index, "versions");
            var hasRun = new CountDownLatch(1);
            List<Thread> threads = new ArrayList<>();
            synchronized (field(index, "buckets")) {
                // The writer makes an overflow bucket free, for which it waits.
                threads.add(Thread.startVirtualThread(() -> {
                    for (long key = 0; key < 20_000; key++) {
                        cache.invalidate(key);
                    }
                }));
                await(() -> oddStripe(versions) >= 0);
                int stripe = oddStripe(versions);
                for (long key = 20_000; threads.size() <= 2 * CARRIERS; key++) {
                    long missing = key;
                    if ((cache.store().hash(ByteBuffer.allocate(8).order(ByteOrder.nativeOrder()).putLong(missing).array()) & Index.STRIPES - 1) == stripe) {
                        threads.add(Thread.startVirtualThread(() -> cache.getIfPresent(missing)));
                    }
                }
                await(() -> threads.stream().skip(1).allMatch(thread -> thread.getState() != Thread.State.NEW));
                Thread.startVirtualThread(hasRun::countDown);
                assertThat(hasRun.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
            }
            for (Thread thread : threads) {
                assertThat(thread.join(LONG)).isTrue();
            }
        }
    }

    /// An interrupted thread does not use its carrier while it waits.
    @Test
    void interruptedThreadsPause() throws Exception {
        var end = new CountDownLatch(1);
        List<Thread> threads = new ArrayList<>();
        var hasEnded = new AtomicBoolean();
        for (int i = 0; i < 2 * CARRIERS; i++) {
            threads.add(Thread.startVirtualThread(() -> {
                Thread.currentThread().interrupt();
                while (!hasEnded.get()) {
                    Pause.nanos(1_000);
                }
                assertThat(Thread.currentThread().isInterrupted()).isTrue();
            }));
        }
        Thread.startVirtualThread(end::countDown);
        assertThat(end.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
        hasEnded.set(true);
        for (Thread thread : threads) {
            assertThat(thread.join(LONG)).isTrue();
        }
    }
}
