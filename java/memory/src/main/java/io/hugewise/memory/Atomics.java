package io.hugewise.memory;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/// Atomic access to the elements of arrays.
final class Atomics {
    static final VarHandle LONGS = MethodHandles.arrayElementVarHandle(long[].class);
    private static final VarHandle INTS = MethodHandles.arrayElementVarHandle(int[].class);

    private Atomics() {}

    static long get(long[] array, int index) {
        return (long) LONGS.getAcquire(array, index);
    }

    static void put(long[] array, int index, long value) {
        LONGS.setVolatile(array, index, value);
    }

    /// May fail without a cause: to be repeated.
    static boolean change(long[] array, int index, long from, long to) {
        return LONGS.weakCompareAndSet(array, index, from, to);
    }

    static boolean compareAndSet(long[] array, int index, long from, long to) {
        return LONGS.compareAndSet(array, index, from, to);
    }

    /// Returns the new value.
    static long add(long[] array, int index, long delta) {
        return (long) LONGS.getAndAdd(array, index, delta) + delta;
    }

    static void set(long[] array, int index, long bits) {
        long now = get(array, index);
        while ((now & bits) != bits && !change(array, index, now, now | bits)) {
            now = get(array, index);
        }
    }

    static void clear(long[] array, int index, long bits) {
        long now = get(array, index);
        while ((now & bits) != 0 && !change(array, index, now, now & ~bits)) {
            now = get(array, index);
        }
    }

    static int get(int[] array, int index) {
        return (int) INTS.getAcquire(array, index);
    }

    static void put(int[] array, int index, int value) {
        INTS.setVolatile(array, index, value);
    }

    static void putRelease(int[] array, int index, int value) {
        INTS.setRelease(array, index, value);
    }

    static boolean change(int[] array, int index, int from, int to) {
        return INTS.compareAndSet(array, index, from, to);
    }

    static int increase(int[] array, int index) {
        return (int) INTS.getAndAdd(array, index, 1);
    }

    static int exchange(int[] array, int index, int value) {
        return (int) INTS.getAndSet(array, index, value);
    }
}
