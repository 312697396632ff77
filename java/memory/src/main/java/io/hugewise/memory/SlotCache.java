package io.hugewise.memory;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.WeakReference;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/// Words with free slots that one thread takes and frees without atomic operations, in a stack for each size class.
///
/// It belongs to a platform thread, or is shared. A shared one is entered by an atomic operation. The thread to which a
/// cache belongs enters it by a plain store to `BUSY`, and then reads `isRevoked`. A thread that takes it away stores to
/// `isRevoked`, executes a [ProcessBarrier], and then waits until it is not busy. So either the owner sees that the cache
/// was taken away, or the other thread that it is busy. This needs no fence of the processor, only a compiler that,
/// like HotSpot's, moves no load above a fence.
final class SlotCache {
    /// Thread of a shared cache: no thread has this id.
    static final long SHARED = -1;

    private static final VarHandle REVOKED;
    private static final int NONE = -1;
    /// From this bit on, a word's own half has the next word of the stack + 1.
    private static final int NEXT = Words.SLOTS;

    /// Elements of 128 bytes: two cache lines, which are often fetched together.
    private static final int PADDING = 16;
    /// Not 0 while the cache is in use.
    private static final int BUSY = PADDING;
    /// Bytes that may still be freed into the stacks; below 0 after a grant was taken back.
    private static final int ROOM = BUSY + 1;
    /// The fields of each class: the word on top of the stack, and the offset of its first slot.
    private static final int FIELDS = 2;

    private static final int WORD = ROOM + 1;

    static {
        try {
            REVOKED = MethodHandles.lookup().findVarHandle(SlotCache.class, "isRevoked", boolean.class);
        } catch (ReflectiveOperationException impossible) {
            throw new ExceptionInInitializerError(impossible);
        }
    }

    /// Id of the thread that it belongs to.
    final long thread;

    private final @Nullable WeakReference<Thread> owner;
    private final Words words;
    private final SlotPlaces places;

    /// `BUSY`, `ROOM`, and the fields of the classes, apart from other objects.
    private final long[] state = new long[WORD + SizeClasses.COUNT * FIELDS + PADDING];

    /// For each class: the list of spans of whose words, owned by this cache, others have freed slots.
    final int[] returned = new int[SizeClasses.COUNT];

    /// Spans that were added to these lists since its thread took one.
    private final int[] returns = new int[1];

    /// Its mark in the words that it owns. It changes whenever the words are given up.
    private int tag;
    private volatile boolean isRevoked;

    /// A cache of a thread, or a shared one if there is none.
    SlotCache(Words words, SlotPlaces places, @Nullable Thread owner, int tag) {
        this.words = words;
        this.places = places;
        this.thread = owner == null ? SHARED : owner.threadId();
        this.owner = owner == null ? null : new WeakReference<>(owner);
        this.tag = tag;
        for (int c = 0; c < SizeClasses.COUNT; c++) {
            state[c * FIELDS + WORD] = NONE;
        }
        Arrays.fill(returned, SpanQueue.NONE);
    }

    // Entering

    /// Begins a use by the thread to which it belongs; false if the cache was taken away.
    boolean enter() {
        Atomics.LONGS.setOpaque(state, BUSY, 1L);
        VarHandle.releaseFence();
        VarHandle.acquireFence();
        if (!(boolean) REVOKED.getOpaque(this)) {
            return true;
        }
        leave();
        return false;
    }

    /// Begins a use of a shared cache, unless another thread uses it.
    boolean tryEnter() {
        return Atomics.get(state, BUSY) == 0 && Atomics.compareAndSet(state, BUSY, 0, 1);
    }

    void leave() {
        Atomics.LONGS.setRelease(state, BUSY, 0L);
    }

    /// Whether its thread has ended; what it did is visible then.
    boolean isEnded() {
        Thread one = owner == null ? null : owner.get();
        return owner != null && (one == null || !one.isAlive());
    }

    /// Begins to take it away from its thread: [ProcessBarrier] and [#awaitRevoked] follow.
    void revoke() {
        isRevoked = true;
    }

    boolean isRevoked() {
        return isRevoked;
    }

    void awaitRevoked() {
        for (int spins = 0; Atomics.get(state, BUSY) != 0; spins++) {
            SpinLock.pause(spins);
        }
    }

    /// Returns it to its thread, which calls this.
    void restore(int newTag) {
        tag = newTag;
        isRevoked = false;
    }

    // Using, after entering

    int tag() {
        return tag;
    }

    /// Takes the list of spans in whose words others have freed slots.
    int takeReturned(int sizeClass) {
        Atomics.put(returns, 0, 0);
        return Atomics.exchange(returned, sizeClass, SpanQueue.NONE);
    }

    /// Notes that another thread has added a span to a list.
    void noteReturn() {
        Atomics.increase(returns, 0);
    }

    /// Spans that were added since its thread took a list.
    int returns() {
        return Atomics.get(returns, 0);
    }

    /// Bytes that may be freed into it.
    long room() {
        return state[ROOM];
    }

    /// Changes how many bytes may be freed into it.
    void allow(long more) {
        state[ROOM] += more;
    }

    /// Takes a slot; returns its offset from unit 0, -1 if there is none.
    long take(int sizeClass) {
        long[] now = state;
        int at = sizeClass * FIELDS + WORD;
        long word = now[at];
        if (word < 0) {
            return NONE;
        }
        long own = words.own(word);
        long shared = words.get(word);
        long bit = own & -own;
        long left = own ^ bit;
        long size = SizeClasses.size(sizeClass);
        long offset = now[at + 1] + Long.numberOfTrailingZeros(bit) * size;
        now[ROOM] += size;
        words.setOwn(word, left);
        if ((left & Words.FREE) == 0) {
            pop(sizeClass, own);
        }
        // A slot that two threads have freed at the same moment may be free in both halves, and another thread have it.
        return (shared & bit) == 0 || words.takeAll(word, bit) ? offset : take(sizeClass);
    }

    /// Adds free slots to a word with this cache's tag.
    ///
    /// @param own the word's own half
    /// @param first the offset of the word's first slot
    /// @param size bytes of the slots
    void add(int sizeClass, long word, long own, long first, long bits, long size) {
        long[] now = state;
        now[ROOM] -= size;
        if ((own & Words.FREE) == 0) {
            int at = sizeClass * FIELDS + WORD;
            words.setOwn(word, (now[at] + 1) << NEXT | bits);
            now[at] = word;
            now[at + 1] = first;
        } else {
            words.setOwn(word, own | bits);
        }
    }

    private void pop(int sizeClass, long own) {
        long word = (own >>> NEXT) - 1;
        int at = sizeClass * FIELDS + WORD;
        state[at] = word;
        state[at + 1] = word < 0 ? 0 : places.offset(word, sizeClass);
    }

    /// Takes one word with free slots off the stack of a class, and gives it up; returns it, -1 if there is none.
    long release(int sizeClass) {
        long word = state[sizeClass * FIELDS + WORD];
        if (word >= 0) {
            long own = words.own(word);
            pop(sizeClass, own);
            words.setOwn(word, 0);
            words.disown(word, own & Words.FREE);
            state[ROOM] += Long.bitCount(own & Words.FREE) * (long) SizeClasses.size(sizeClass);
        }
        return word;
    }
}
