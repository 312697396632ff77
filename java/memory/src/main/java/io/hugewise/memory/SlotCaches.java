package io.hugewise.memory;

import java.lang.invoke.VarHandle;
import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/// The caches of free slots and runs: one for each of up to 64 platform threads, and some that all other threads share,
/// by the CPU they run on.
///
/// A platform thread gets a cache when it first needs one, if the place that its id selects is free or was of a thread
/// that has ended. Caches keep at most 1/50 of the memory; [#drain] takes all of it back, also from threads that do not
/// cooperate.
final class SlotCaches {
    /// The caches keep at most 1/50 of the memory.
    private static final int PART = 50;
    /// A cache asks for a part of what all may keep.
    private static final int GRANTS = 64;
    /// Memory for each cache.
    private static final int BYTES_EACH = 1 << 20;
    private static final int MOST_OWNED = 64;
    /// A cache to which so many spans were returned, without a use by its thread, is taken from the thread.
    private static final int MOST_RETURNS = 256;
    private static final int MOST_SHORTAGES = 1024;
    /// The index of a cache in its tag; the higher bits count how often it was drained.
    private static final int INDEX_BITS = 7;

    private final Words words;
    private final SlotPlaces places;
    private final Units units;
    private final int[] links;
    private final SlotClass[] classes;
    /// Those of platform threads, by the low bits of the thread's id. Read without synchronization: what a thread reads of
    /// a cache of others is final.
    private final @Nullable SlotCache[] owned;
    /// The state of each of these caches. A place without a cache has the state of an empty one that no thread owns.
    private final long[][] states;
    private final SlotCache[] shared;
    /// The tag of each cache, 0 for none. The shared ones come after the others.
    private final int[] tags;
    /// The tag that each had last.
    private final int[] lastTags;
    /// Guards tags, and who has which cache. It is never waited for by a thread that is in a cache.
    private final SpinLock lock = new SpinLock();
    /// Bytes that no cache may keep yet.
    private final AtomicLong grantable;
    private final long grant;
    /// How often a grant was refused; a hint, counted without synchronization.
    private int shortages;

    /// @param links for each unit, as a link of a list
    /// @param classes filled in later
    /// @param stripes number of shared caches, a power of two
    SlotCaches(Words words, SlotPlaces places, Units units, int[] links, SlotClass[] classes, long bytes, int stripes) {
        this.words = words;
        this.places = places;
        this.units = units;
        this.links = links;
        this.classes = classes;
        int count = Math.clamp(Long.highestOneBit(bytes / BYTES_EACH), 1, MOST_OWNED);
        this.owned = new SlotCache[ProcessBarrier.IS_AVAILABLE ? count : 1];
        this.states = new long[owned.length][];
        Arrays.fill(states, SlotCache.stateOf(SlotCache.SHARED));
        this.tags = new int[MOST_OWNED + stripes];
        this.lastTags = new int[MOST_OWNED + stripes];
        this.shared = new SlotCache[stripes];
        for (int i = 0; i < stripes; i++) {
            shared[i] = new SlotCache(words, places, links, null, newTag(MOST_OWNED + i));
        }
        this.grantable = new AtomicLong(bytes / PART);
        this.grant = bytes / PART / GRANTS;
    }

    private int newTag(int index) {
        int tag = lastTags[index] + (1 << INDEX_BITS) & 0xFFFF;
        // A word with the tag 0 has no owner.
        lastTags[index] = tag < 1 << INDEX_BITS ? 1 << INDEX_BITS | index : tag | index;
        Atomics.put(tags, index, lastTags[index]);
        return lastTags[index];
    }

    /// Whether a word with this owner may be in use by a cache at this moment. Once false, it stays false
    /// for this tag until its cache was drained 511 times.
    boolean isLive(int tag) {
        return tag != 0 && Atomics.get(tags, tag & (1 << INDEX_BITS) - 1) == tag;
    }

    /// States of the caches of platform threads, by the low bits of the thread's id.
    long[][] ownedStates() {
        return states;
    }

    long[][] sharedStates() {
        return Arrays.stream(shared).map(SlotCache::state).toArray(long[][]::new);
    }

    /// Enters a cache for the calling thread, which leaves it soon.
    SlotCache enter() {
        Thread thread = Thread.currentThread();
        long id = thread.threadId();
        SlotCache cache = owned[(int) id & owned.length - 1];
        if (cache != null && cache.thread() == id && cache.enter()) {
            return cache;
        }
        return enterOther(thread, cache);
    }

    private SlotCache enterOther(Thread thread, @Nullable SlotCache present) {
        if (ProcessBarrier.IS_AVAILABLE && !thread.isVirtual()) {
            SlotCache cache = own(thread, present);
            if (cache != null && cache.enter()) {
                return cache;
            }
        }
        return enterShared(Cpu.current());
    }

    private SlotCache enterShared(int from) {
        for (int i = from, spins = 0; ; i++, spins++) {
            SlotCache cache = shared[i & shared.length - 1];
            if (cache.tryEnter()) {
                return cache;
            }
            if (spins > shared.length) {
                SpinLock.pause(spins);
            }
        }
    }

    /// Gives a cache to a thread, if the one in its place is its own, or of no thread that uses it; null otherwise.
    private @Nullable SlotCache own(Thread thread, @Nullable SlotCache present) {
        int at = (int) thread.threadId() & owned.length - 1;
        boolean isMine = present != null && present.thread() == thread.threadId();
        boolean isOthers = present != null && !isMine && !present.isRevoked() && !present.isEnded();
        if (isOthers || !lock.tryLock()) {
            return null;
        }
        try {
            takeFromEnded();
            SlotCache now = owned[at];
            if (now != null && now == present && isMine) {
                now.restore(newTag(at));
                return now;
            }
            if (now != null && !now.isRevoked()) {
                return null;
            }
            SlotCache cache = new SlotCache(words, places, links, thread, newTag(at));
            owned[at] = cache;
            states[at] = cache.state();
            return cache;
        } catch (OutOfMemoryError _) {
            // Of the heap. A block can be freed all the same, with a shared cache.
            return null;
        } finally {
            lock.unlock();
        }
    }

    /// Takes the caches of threads that have ended. The lock is held.
    private void takeFromEnded() {
        for (int i = 0; i < owned.length; i++) {
            SlotCache cache = owned[i];
            if (cache != null && !cache.isRevoked() && cache.isEnded()) {
                cache.revoke();
                drainOwned(i, cache);
            }
        }
    }

    /// Allows a cache that was entered to keep more, unless all caches keep their most.
    boolean grant(SlotCache cache, int size) {
        long more = Math.max(grant, size);
        if (grantable.get() >= more) {
            if (grantable.addAndGet(-more) >= 0) {
                cache.allow(more);
                return true;
            }
            grantable.addAndGet(more);
        }
        shortages++;
        return false;
    }

    /// Takes all caches back if they have refused many slots: some may keep much that they do not need. The caller is in
    /// no cache, and has no lock.
    void rebalance() {
        if (shortages >= MOST_SHORTAGES) {
            shortages = 0;
            drain();
        }
    }

    /// Takes back what a cache that was entered may keep and does not need.
    void takeBack(SlotCache cache) {
        if (cache.room() > 2 * grant) {
            grantable.addAndGet(cache.room() - grant);
            cache.allow(grant - cache.room());
        }
    }

    /// Takes the free slots of all caches back. The caller is in no cache, and has no lock.
    void drain() {
        lock.lock();
        try {
            revoke(null);
            for (int i = 0; i < shared.length; i++) {
                drainShared(i);
            }
        } finally {
            lock.unlock();
        }
    }

    /// Takes a cache away whose thread leaves many returned spans unused. The caller is in no cache, and has no lock.
    void drainUnused(int tag) {
        SlotCache cache = ofTag(tag);
        if (cache != null && cache.returns() >= MOST_RETURNS && lock.tryLock()) {
            try {
                if (cache.thread() == SlotCache.SHARED) {
                    drainShared((tag & (1 << INDEX_BITS) - 1) - MOST_OWNED);
                } else {
                    revoke(cache);
                }
            } finally {
                lock.unlock();
            }
        }
    }

    private @Nullable SlotCache ofTag(int tag) {
        int index = tag & (1 << INDEX_BITS) - 1;
        return !isLive(tag) ? null : index < MOST_OWNED ? owned[index] : shared[index - MOST_OWNED];
    }

    /// Takes caches away from their threads: one of them, or all.
    private void revoke(@Nullable SlotCache only) {
        // In one number: there may be no memory on the heap once the first is revoked.
        long revoked = 0;
        for (int i = 0; i < owned.length; i++) {
            SlotCache cache = owned[i];
            if (cache != null && !cache.isRevoked() && (only == null || only == cache)) {
                cache.revoke();
                revoked |= 1L << i;
            }
        }
        if (revoked != 0) {
            ProcessBarrier.await();
        }
        for (long left = revoked; left != 0; left &= left - 1) {
            int i = Long.numberOfTrailingZeros(left);
            SlotCache cache = Objects.requireNonNull(owned[i]);
            cache.awaitRevoked();
            drainOwned(i, cache);
        }
    }

    private void drainOwned(int index, SlotCache cache) {
        giveUp(cache);
        Atomics.put(tags, index, 0);
        giveReturned(cache);
    }

    private void drainShared(int index) {
        SlotCache cache = shared[index];
        for (int spins = 0; !cache.tryEnter(); spins++) {
            SpinLock.pause(spins);
        }
        try {
            giveUp(cache);
            cache.restore(newTag(MOST_OWNED + index));
            giveReturned(cache);
        } finally {
            cache.leave();
        }
    }

    /// Gives up all words with free slots, and all runs.
    private void giveUp(SlotCache cache) {
        for (int c = 0; c < SizeClasses.COUNT; c++) {
            for (int unit; SizeClasses.isRun(c) && (unit = cache.takeRun(c)) >= 0; ) {
                units.setInfo(unit, 0);
                units.give(unit, SizeClasses.size(c) >>> Units.UNIT_LOG2);
            }
            for (long word; (word = cache.release(c)) >= 0; ) {
                classes[c].queue.add(places.firstUnit(word));
            }
        }
        grantable.addAndGet(cache.room());
        cache.allow(-cache.room());
    }

    private void giveReturned(SlotCache cache) {
        for (int c = 0; c < SizeClasses.COUNT; c++) {
            classes[c].queue.addAll(cache.returned, c);
        }
    }

    /// Lets the owner of a word find a slot that another thread has freed in it, or all threads if it is in no use.
    ///
    /// @param tag its owner
    /// @param first the first unit of its span
    void giveBack(int sizeClass, int tag, int first) {
        SpanQueue queue = classes[sizeClass].queue;
        SlotCache cache = ofTag(tag);
        if (cache == null) {
            queue.add(first);
        } else if (queue.addTo(cache.returned, sizeClass, first)) {
            cache.noteReturn();
            VarHandle.fullFence();
            if (!isLive(tag)) {
                queue.addAll(cache.returned, sizeClass);
            }
        }
    }
}
