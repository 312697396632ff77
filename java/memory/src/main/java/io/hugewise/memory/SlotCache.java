package io.hugewise.memory;

import java.lang.invoke.VarHandle;
import java.lang.ref.WeakReference;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/// Words with free slots that one thread takes and frees without atomic operations, and free runs, in a stack for each
/// size class.
///
/// It belongs to a platform thread, or is shared. A shared one is entered by an atomic operation. The thread to which a
/// cache belongs enters it by a plain store to `BUSY`, and then reads `REVOKED`. A thread that takes it away stores to
/// `REVOKED`, executes a [ProcessBarrier], and then waits until it is not busy. So either the owner sees that the cache
/// was taken away, or the other thread that it is busy. This needs no fence of the processor, only a compiler that,
/// like HotSpot's, moves no load above a fence.
final class SlotCache {
    /// Thread of a shared cache: no thread has this id.
    static final long SHARED = -1;

    private static final int NONE = -1;
    /// From this bit on, a word's own half has the next word of the stack + 1.
    private static final int NEXT = Words.SLOTS;

    // Indices of the state.

    /// Elements of 128 bytes: two cache lines, which are often fetched together.
    private static final int PADDING = 16;
    /// Id of the thread that it belongs to.
    static final int THREAD = PADDING;
    /// Not 0 while the cache is in use.
    private static final int BUSY = THREAD + 1;
    /// Not 0 once it was taken away from its thread.
    private static final int REVOKED = BUSY + 1;
    /// Bytes that may still be freed into the stacks; below 0 after a grant was taken back.
    static final int ROOM = REVOKED + 1;
    /// Its mark in the words that it owns. It changes whenever the words are given up.
    static final int TAG = ROOM + 1;
    /// The fields of each class: the word on top of the stack, and the offset of its first slot. Of a class of runs: no
    /// word, and the first unit of the run on top of the stack.
    private static final int FIELDS = 2;

    private static final int WORD = TAG + 1;
    private static final int LENGTH = WORD + SizeClasses.COUNT * FIELDS + PADDING;

    private final @Nullable WeakReference<Thread> owner;
    private final Words words;
    private final SlotPlaces places;
    /// For the first unit of each run: the next one of its stack.
    private final int[] links;
    private final long[] state;

    /// For each class: the list of spans of whose words, owned by this cache, others have freed slots.
    final int[] returned = new int[SizeClasses.COUNT];

    /// Spans that were added to these lists since its thread took one.
    private final int[] returns = new int[1];

    /// A cache of a thread, or a shared one if there is none.
    SlotCache(Words words, SlotPlaces places, int[] links, @Nullable Thread owner, int tag) {
        this.words = words;
        this.places = places;
        this.links = links;
        this.owner = owner == null ? null : new WeakReference<>(owner);
        this.state = stateOf(owner == null ? SHARED : owner.threadId());
        state[TAG] = tag;
        Arrays.fill(returned, SpanQueue.NONE);
    }

    /// The state of an empty cache.
    static long[] stateOf(long thread) {
        // Apart from other objects.
        long[] state = new long[LENGTH];
        state[THREAD] = thread;
        for (int c = 0; c < SizeClasses.COUNT; c++) {
            state[indexOf(c)] = NONE;
            state[indexOf(c) + 1] = NONE;
        }
        return state;
    }

    /// Index of the fields of a class.
    static int indexOf(int sizeClass) {
        return WORD + sizeClass * FIELDS;
    }

    long[] state() {
        return state;
    }

    long thread() {
        return state[THREAD];
    }

    // Entering

    /// Begins a use by the thread to which it belongs; false if the cache was taken away.
    boolean enter() {
        if (enter(state)) {
            return true;
        }
        leave();
        return false;
    }

    /// Begins a use by the thread to which it belongs; false if the cache was taken away. The caller then leaves it in
    /// either case.
    static boolean enter(long[] state) {
        Atomics.LONGS.setOpaque(state, BUSY, 1L);
        VarHandle.releaseFence();
        VarHandle.acquireFence();
        return (long) Atomics.LONGS.getOpaque(state, REVOKED) == 0;
    }

    /// Begins a use of a shared cache, unless another thread uses it.
    boolean tryEnter() {
        return tryEnter(state);
    }

    static boolean tryEnter(long[] state) {
        return Atomics.get(state, BUSY) == 0 && Atomics.compareAndSet(state, BUSY, 0, 1);
    }

    void leave() {
        leave(state);
    }

    static void leave(long[] state) {
        Atomics.LONGS.setRelease(state, BUSY, 0L);
    }

    /// Whether its thread has ended; what it did is visible then.
    boolean isEnded() {
        Thread one = owner == null ? null : owner.get();
        return owner != null && (one == null || !one.isAlive());
    }

    /// Begins to take it away from its thread: [ProcessBarrier] and [#awaitRevoked] follow.
    void revoke() {
        Atomics.put(state, REVOKED, 1);
    }

    boolean isRevoked() {
        return Atomics.get(state, REVOKED) != 0;
    }

    void awaitRevoked() {
        for (int spins = 0; Atomics.get(state, BUSY) != 0; spins++) {
            SpinLock.pause(spins);
        }
    }

    /// Returns it to its thread, which calls this.
    void restore(int newTag) {
        state[TAG] = newTag;
        Atomics.put(state, REVOKED, 0);
    }

    // Using, after entering

    int tag() {
        return (int) state[TAG];
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
        int at = indexOf(sizeClass);
        long word = state[at];
        if (word < 0) {
            return NONE;
        }
        long own = words.own(word);
        long shared = words.get(word);
        long bit = own & -own;
        long left = own ^ bit;
        long size = SizeClasses.size(sizeClass);
        long offset = state[at + 1] + Long.numberOfTrailingZeros(bit) * size;
        state[ROOM] += size;
        words.setOwn(word, left);
        if ((left & Words.FREE) == 0) {
            pop(state, at, own, places, sizeClass);
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
        state[ROOM] -= size;
        long before = (own & Words.FREE) == 0 ? push(state, indexOf(sizeClass), word, first) : own;
        words.setOwn(word, before | bits);
    }

    /// Pushes a word onto the stack of a class; returns what its own half has besides free slots.
    ///
    /// @param at index of the fields of the class
    /// @param first the offset of the word's first slot
    static long push(long[] state, int at, long word, long first) {
        long next = state[at] + 1;
        state[at] = word;
        state[at + 1] = first;
        return next << NEXT;
    }

    /// Pops the word, of which `own` was the own half.
    static void pop(long[] state, int at, long own, SlotPlaces places, int sizeClass) {
        long word = (own >>> NEXT) - 1;
        state[at] = word;
        state[at + 1] = word < 0 ? 0 : places.offset(word, sizeClass);
    }

    /// Takes a run; returns its first unit, -1 if there is none.
    int takeRun(int sizeClass) {
        int at = indexOf(sizeClass) + 1;
        int unit = (int) state[at];
        if (unit >= 0) {
            state[at] = links[unit];
            state[ROOM] += SizeClasses.size(sizeClass);
        }
        return unit;
    }

    /// Adds a free run.
    void addRun(int sizeClass, int unit) {
        int at = indexOf(sizeClass) + 1;
        links[unit] = (int) state[at];
        state[at] = unit;
        state[ROOM] -= SizeClasses.size(sizeClass);
    }

    /// Takes one word with free slots off the stack of a class, and gives it up; returns it, -1 if there is none.
    long release(int sizeClass) {
        int at = indexOf(sizeClass);
        long word = state[at];
        if (word >= 0) {
            long own = words.own(word);
            pop(state, at, own, places, sizeClass);
            words.setOwn(word, 0);
            words.disown(word, own & Words.FREE);
            state[ROOM] += Long.bitCount(own & Words.FREE) * (long) SizeClasses.size(sizeClass);
        }
        return word;
    }
}
