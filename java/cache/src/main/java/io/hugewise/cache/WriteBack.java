package io.hugewise.cache;

import java.time.Duration;
import java.util.Comparator;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/// How changes of a cache are written to a store later, in batches.
///
/// ```java
/// builder.writeBack(WriteBack.<String, Row>to(database::upsertAll).window(Duration.ofSeconds(2)).ordered(Comparator.naturalOrder()))
/// ```
///
/// A change is acknowledged, by the return of the call, while it is in memory only. No change is acknowledged as long
/// as an older one has been unwritten for the window: so a process that is killed loses changes of this window at most.
///
/// @param <K> type of keys
/// @param <V> type of values
public final class WriteBack<K, V> {
    private static final int BATCH = 1000;
    private static final long UNWRITTEN = 1 << 20;
    private static final int ATTEMPTS = 5;

    final CacheWriter<K, V> writer;
    long windowNanos = TimeUnit.SECONDS.toNanos(1);
    long patienceNanos = TimeUnit.SECONDS.toNanos(30);
    int batch = BATCH;
    long maximumUnwritten = UNWRITTEN;
    int attempts = ATTEMPTS;
    RefusedChange<K, V> refused = (_, _, _) -> RefusedChange.Decision.KEEP;
    @Nullable Comparator<? super K> order;

    private WriteBack(CacheWriter<K, V> writer) {
        this.writer = Objects.requireNonNull(writer, "writer");
    }

    /// Begins to describe it.
    ///
    /// @param writer writes to the store
    /// @param <K> type of keys
    /// @param <V> type of values
    /// @return a description with a window of 1 s, batches of 1000 changes, a limit of 2²⁰ changes, 30 s of patience
    public static <K, V> WriteBack<K, V> to(CacheWriter<K, V> writer) {
        return new WriteBack<>(writer);
    }

    /// Sets the window: how long a change may be unwritten when another one is acknowledged. Changes are written after
    /// half of it.
    ///
    /// @param duration the window
    /// @return this
    public WriteBack<K, V> window(Duration duration) {
        windowNanos = Clock.nanos(duration);
        return this;
    }

    /// Sets how long a call waits for a failing store before it throws an [UnwrittenException].
    ///
    /// @param duration the time
    /// @return this
    public WriteBack<K, V> patience(Duration duration) {
        patienceNanos = Clock.nanos(duration);
        return this;
    }

    /// Sets how many changes are written together. Fewer are, for a time, after the store has failed.
    ///
    /// @param changes most changes of a batch
    /// @return this
    public WriteBack<K, V> batch(int changes) {
        if (changes < 1) {
            throw new IllegalArgumentException("a batch has 1 change or more, not " + changes);
        }
        batch = changes;
        return this;
    }

    /// Sets how many changes may be unwritten, each write of a key counted; further ones wait.
    ///
    /// @param changes most changes
    /// @return this
    public WriteBack<K, V> maximumUnwritten(long changes) {
        if (changes < 1) {
            throw new IllegalArgumentException("1 unwritten change or more is possible, not " + changes);
        }
        maximumUnwritten = changes;
        return this;
    }

    /// Sets what becomes of a change that the store refuses for good while it accepts others, which are written meanwhile. By
    /// default it is kept, and tried again with pauses of up to a minute.
    ///
    /// @param number how often a change is tried alone before it counts as refused, 1 or more; 5 by default
    /// @param handler decides it
    /// @return this
    public WriteBack<K, V> refused(int number, RefusedChange<K, V> handler) {
        if (number < 1) {
            throw new IllegalArgumentException("a change is tried once or more often, not " + number + " times");
        }
        attempts = number;
        refused = Objects.requireNonNull(handler, "handler");
        return this;
    }

    /// Lets the changes of a batch be ordered by key.
    ///
    /// @param comparator the order
    /// @return this
    public WriteBack<K, V> ordered(Comparator<? super K> comparator) {
        order = Objects.requireNonNull(comparator, "comparator");
        return this;
    }
}
