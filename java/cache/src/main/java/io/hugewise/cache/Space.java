package io.hugewise.cache;

import io.hugewise.memory.internal.Pause;
import io.hugewise.cache.Manifest.Figure;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.IntSupplier;

/// Memory for new entries: appends them to the log of the window, and evicts others if no segment is free.
final class Space {
    /// Time between two attempts to take memory while another thread evicts.
    private static final long WAIT_NANOS = 50_000;
    /// Free segments that end such a wait: a few, so that not each following put has to wait.
    private static final int ENOUGH = 3;
    /// Time that background work waits for the lock of evictions, and between two attempts.
    private static final long BUSY_NANOS = TimeUnit.MILLISECONDS.toNanos(1);
    /// Time between two searches for what has expired, each of which reads a field of each segment.
    private static final long SEARCH_NANOS = TimeUnit.MILLISECONDS.toNanos(50);
    /// Steps of one kind in a part of the background work, so that other caches have their turn.
    private static final int STEPS = 8;

    private final Segments segments;
    private final Chunks chunks;
    private final Evictor evictor;
    private final Retired retired;
    private final Clock clock;
    private final boolean canExpire;
    final Maintenance maintenance;
    /// Parts of the background work since the last pause.
    private int parts;
    /// Time of the last search of the background work for what has expired.
    private long searchedNanos = System.nanoTime() - SEARCH_NANOS;
    /// Held to take segments, also during an eviction: taken before the lock of evictions.
    private final ReentrantLock taking = new ReentrantLock();
    /// Of the background work.
    final Failures failures = new Failures();
    private volatile boolean isClosed;
    /// Whether all accesses have ended, and none can begin.
    volatile boolean isUnused;

    Space(Segments segments, Chunks chunks, Evictor evictor, Retired retired, Clock clock, boolean canExpire,
            BooleanSupplier afterMaintenance) {
        this.segments = segments;
        this.chunks = chunks;
        this.evictor = evictor;
        this.retired = retired;
        this.clock = clock;
        this.canExpire = canExpire;
        this.maintenance = new Maintenance(failures, clock.isUsers, () -> {
            long next = maintainPart();
            return afterMaintenance.getAsBoolean() ? Math.min(next, Maintenance.PERIOD_NANOS) : next;
        });
    }

    /// Appends room for an entry and takes chunks for the parts of its value.
    ///
    /// @return its address, or 0 if no memory is free
    long append(long size, int[] parts) {
        if (parts.length > 0 && !takeParts(parts)) {
            return 0;
        }
        long entry = 0;
        try {
            do {
                entry = evictor.window.tryAppend(size, parts.length);
            } while (entry == 0 && openSegment(size));
            return entry;
        } finally {
            if (entry == 0) {
                giveParts(parts, parts.length);
            }
        }
    }

    private void giveParts(int[] parts, int count) {
        for (int i = 0; i < count; i++) {
            retired.addChunk(parts[i]);
        }
    }

    /// Opens another segment, unless another thread did. Needs the lock of evictions only if no segment is free.
    private boolean openSegment(long size) {
        taking.lock();
        try {
            if (evictor.window.hasRoom(size)) {
                return true;
            }
            int segment = take(() -> segments.tryTake(Segments.RESERVED), Segments.RESERVED + ENOUGH);
            if (segment < 0) {
                return false;
            }
            evictor.window.open(segment);
            wakeIfLow();
            if (evictor.lock.tryLock()) {
                try {
                    evictor.adapt();
                } finally {
                    evictor.lock.unlock();
                }
            }
            return true;
        } finally {
            taking.unlock();
        }
    }

    private void wakeIfLow() {
        if (evictor.isLow()) {
            maintenance.wake();
        }
    }

    private boolean takeParts(int[] parts) {
        int taken = 0;
        taking.lock();
        try {
            IntSupplier attempt = () -> chunks.tryTake(Segments.RESERVED);
            for (int part = 0; taken < parts.length && part >= 0; ) {
                part = take(attempt, 0);
                parts[taken] = part;
                taken += part < 0 ? 0 : 1;
            }
            wakeIfLow();
            return taken == parts.length;
        } finally {
            taking.unlock();
            if (taken < parts.length) {
                giveParts(parts, taken);
            }
        }
    }

    /// Takes a segment or a chunk; evicts if none is free. The caller holds the lock [#taking].
    ///
    /// @param attempt returns its number, or -1
    /// @param enough free segments that end the wait for another thread that evicts
    private int take(IntSupplier attempt, int enough) {
        checkOpen();
        int taken = attempt.getAsInt();
        while (taken < 0 && !evictor.lock.tryLock()) {
            Pause.nanos(WAIT_NANOS);
            taken = segments.free() >= enough ? attempt.getAsInt() : -1;
        }
        if (taken >= 0) {
            return taken;
        }
        try {
            evictor.adapt();
            taken = attempt.getAsInt();
            for (int tries = 0; taken < 0 && tries < 2 * segments.limit() && evictor.evict(); tries++) {
                taken = attempt.getAsInt();
            }
            return taken;
        } finally {
            evictor.lock.unlock();
        }
    }

    private void checkOpen() {
        if (isClosed) {
            throw new IllegalStateException("the cache is closed");
        }
    }

    /// Frees segments in advance, and what has expired.
    void maintain() {
        long nanos = readClock();
        ifOpen(() -> adapt(nanos));
        int tries = segments.limit();
        while (tries-- > 0 && ifOpen(this::evictIfShort)) {
            Thread.onSpinWait();
        }
        while (ifOpen(evictor::shrinkIndex)) {
            Thread.onSpinWait();
        }
        while (ifOpen(this::expire)) {
            Thread.onSpinWait();
        }
    }

    /// Does a part of the same, unless another thread evicts: the thread of all caches waits for none.
    ///
    /// @return nanoseconds until the next part
    private long maintainPart() throws InterruptedException {
        long nanos = readClock();
        if (!evictor.lock.tryLock(BUSY_NANOS, TimeUnit.NANOSECONDS)) {
            return BUSY_NANOS;
        }
        try {
            if (isClosed) {
                return Maintenance.NEVER;
            }
            adapt(nanos);
            boolean isMore = repeat(this::evictIfShort);
            isMore |= repeat(evictor::shrinkIndex);
            boolean isSearch = canExpire && System.nanoTime() - searchedNanos >= SEARCH_NANOS;
            boolean isMoreExpired = isSearch && repeat(this::expire);
            searchedNanos = isSearch && !isMoreExpired ? System.nanoTime() : searchedNanos;
            isMore |= isMoreExpired;
            parts = isMore ? parts + 1 : 0;
            if (isMore && parts * STEPS < 2 * segments.limit()) {
                return 0;
            }
            parts = 0;
            return isMore || (canExpire && !isSearch) || retired.count() > 0 ? Maintenance.PERIOD_NANOS : nanosUntilExpiry();
        } finally {
            evictor.lock.unlock();
        }
    }

    /// Repeats a step while it may have more to do.
    ///
    /// @return whether it still may
    private static boolean repeat(BooleanSupplier step) {
        int count = 0;
        while (count < STEPS && step.getAsBoolean()) {
            count++;
        }
        return count == STEPS;
    }

    private long readClock() {
        clock.read();
        return clock.nanos();
    }

    private boolean adapt(long nanos) {
        segments.manifest.setFigure(Figure.LAST_NANOS, nanos);
        evictor.adapt();
        return true;
    }

    private boolean evictIfShort() {
        return evictor.isShort() && evictor.evict();
    }

    private boolean expire() {
        return canExpire && evictor.expire(clock.now());
    }

    private long nanosUntilExpiry() {
        int next = canExpire ? evictor.nextExpiry() : Clock.NEVER;
        if (next == Clock.NEVER) {
            return Maintenance.NEVER;
        }
        // The user's clock may advance at any rate.
        return clock.isUsers ? Maintenance.PERIOD_NANOS : Math.max(clock.until(next), BUSY_NANOS);
    }

    private boolean ifOpen(BooleanSupplier task) {
        evictor.lock.lock();
        try {
            return !isClosed && task.getAsBoolean();
        } finally {
            evictor.lock.unlock();
        }
    }

    void clear() {
        evictor.lock.lock();
        try {
            checkOpen();
            evictor.clear();
        } finally {
            evictor.lock.unlock();
            maintenance.changed();
        }
    }

    /// Changes the number of segments that may be in use, and frees others.
    ///
    /// @return whether no more are in use
    boolean limit(int count) {
        evictor.lock.lock();
        try {
            checkOpen();
            segments.setLimit(count);
            for (int tries = 0; evictor.isShort() && tries < 2 * segments.pool.count() && evictor.evict(); tries++) {
                Thread.onSpinWait();
            }
            return segments.free() >= 0;
        } finally {
            evictor.lock.unlock();
            maintenance.changed();
        }
    }

    /// Ends all accesses.
    ///
    /// @param save is called when no thread uses the memory any more
    void close(Pins pins, Runnable save) {
        taking.lock();
        evictor.lock.lock();
        try {
            if (isClosed) {
                return;
            }
            isClosed = true;
            pins.close();
            isUnused = true;
            save.run();
        } finally {
            evictor.lock.unlock();
            taking.unlock();
            maintenance.close();
        }
    }
}
