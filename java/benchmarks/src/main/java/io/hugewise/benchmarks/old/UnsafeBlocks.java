package io.hugewise.benchmarks.old;

import java.lang.reflect.Field;
import sun.misc.Unsafe;

/// Blocks of `Unsafe.allocateMemory`.
public final class UnsafeBlocks {
    private static final Unsafe UNSAFE = find();

    private UnsafeBlocks() {}

    private static Unsafe find() {
        try {
            Field field = Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return (Unsafe) field.get(null);
        } catch (ReflectiveOperationException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    /// Allocates a block and returns its address.
    public static long allocate(long size) {
        return UNSAFE.allocateMemory(size);
    }

    /// Frees a block.
    public static void free(long address) {
        UNSAFE.freeMemory(address);
    }
}
