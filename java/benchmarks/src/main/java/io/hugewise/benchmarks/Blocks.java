package io.hugewise.benchmarks;

import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeAllocator;
import io.hugewise.memory.HugeArena;
import io.hugewise.memory.HugeOptions;
import io.netty.buffer.AdaptiveByteBufAllocator;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.PooledByteBufAllocator;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.function.IntFunction;

/// Live blocks of one allocator, by their index. Each allocator is measured in its own JVM, so that the compiler knows
/// its class.
abstract class Blocks {
    /// Elements before and after the used ones of an array, so that threads do not write to the same cache line.
    static final int PADDING = 32;

    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;

    /// Allocates a block at an index, and writes to it.
    abstract void allocate(int index, int size) throws Throwable;

    abstract void free(int index) throws Throwable;

    /// Makes a number of blocks of an allocator by its name.
    static IntFunction<Blocks> of(String allocator, long bytes) {
        return switch (allocator) {
            case "huge" -> count -> new Offsets(count, Huge.of(bytes));
            case "huge-segment" -> count -> new Segments(count, Huge.of(bytes));
            case "netty-pooled" -> count -> new Buffers(count, PooledByteBufAllocator.DEFAULT);
            case "netty-adaptive" -> count -> new Buffers(count, Adaptive.ALLOCATOR);
            default -> Addresses::new;
        };
    }

    /// One allocator for all threads.
    private static final class Huge {
        private static HugeAllocator allocator;

        static synchronized HugeAllocator of(long bytes) {
            if (allocator == null) {
                allocator = HugeAllocator.of(HugeArena.ofShared(HugeOptions.reserve(bytes).only(Backing.base()).pretouch()));
            }
            return allocator;
        }
    }

    private static final class Adaptive {
        static final ByteBufAllocator ALLOCATOR = new AdaptiveByteBufAllocator(true);
    }

    private static final class Offsets extends Blocks {
        private final long[] offsets;
        private final HugeAllocator allocator;
        private final MemorySegment memory;

        Offsets(int count, HugeAllocator allocator) {
            offsets = new long[count + 2 * PADDING];
            this.allocator = allocator;
            memory = allocator.memory();
        }

        @Override
        void allocate(int index, int size) {
            long offset = allocator.allocateOffset(size);
            memory.set(LONG, offset, index);
            offsets[index + PADDING] = offset;
        }

        @Override
        void free(int index) {
            allocator.freeOffset(offsets[index + PADDING]);
        }
    }

    private static final class Segments extends Blocks {
        private final MemorySegment[] segments;
        private final HugeAllocator allocator;

        Segments(int count, HugeAllocator allocator) {
            segments = new MemorySegment[count + 2 * PADDING];
            this.allocator = allocator;
        }

        @Override
        void allocate(int index, int size) {
            MemorySegment block = allocator.allocate(size);
            block.set(LONG, 0, index);
            segments[index + PADDING] = block;
        }

        @Override
        void free(int index) {
            allocator.free(segments[index + PADDING]);
        }
    }

    private static final class Buffers extends Blocks {
        private final ByteBuf[] buffers;
        private final ByteBufAllocator allocator;

        Buffers(int count, ByteBufAllocator allocator) {
            buffers = new ByteBuf[count + 2 * PADDING];
            this.allocator = allocator;
        }

        @Override
        void allocate(int index, int size) {
            ByteBuf block = allocator.directBuffer(size, size);
            block.setLongLE(0, index);
            buffers[index + PADDING] = block;
        }

        @Override
        void free(int index) {
            buffers[index + PADDING].release();
        }
    }

    /// Functions like malloc and free, by the allocator of the property `allocator`.
    private static final class Addresses extends Blocks {
        private static final MemorySegment ALL = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);
        private static final MethodHandle ALLOCATE;
        private static final MethodHandle FREE;

        static {
            try {
                String name = System.getProperty("allocator");
                Linker linker = Linker.nativeLinker();
                Linker.Option[] options =
                        name.equals("malloc-critical") ? new Linker.Option[] {Linker.Option.critical(false)} : new Linker.Option[0];
                SymbolLookup functions = switch (name) {
                    case "malloc", "malloc-critical" -> linker.defaultLookup();
                    case "jemalloc" -> SymbolLookup.libraryLookup("libjemalloc.so.2", Arena.global());
                    case "mimalloc" -> SymbolLookup.libraryLookup("libmimalloc.so.2", Arena.global());
                    default -> _ -> java.util.Optional.empty();
                };
                String prefix = name.equals("mimalloc") ? "mi_" : "";
                if (name.equals("unsafe")) {
                    Class<?> unsafe = Class.forName("io.hugewise.benchmarks.old.UnsafeBlocks");
                    var lookup = MethodHandles.lookup();
                    ALLOCATE = lookup.findStatic(unsafe, "allocate", MethodType.methodType(long.class, long.class));
                    FREE = lookup.findStatic(unsafe, "free", MethodType.methodType(void.class, long.class));
                } else {
                    var allocate = FunctionDescriptor.of(ValueLayout.JAVA_LONG, ValueLayout.JAVA_LONG);
                    var free = FunctionDescriptor.ofVoid(ValueLayout.JAVA_LONG);
                    ALLOCATE = linker.downcallHandle(functions.findOrThrow(prefix + "malloc"), allocate, options);
                    FREE = linker.downcallHandle(functions.findOrThrow(prefix + "free"), free, options);
                }
            } catch (ReflectiveOperationException error) {
                throw new ExceptionInInitializerError(error);
            }
        }

        private final long[] addresses;

        Addresses(int count) {
            addresses = new long[count + 2 * PADDING];
        }

        @Override
        void allocate(int index, int size) throws Throwable {
            long address = (long) ALLOCATE.invokeExact((long) size);
            ALL.set(LONG, address, index);
            addresses[index + PADDING] = address;
        }

        @Override
        void free(int index) throws Throwable {
            FREE.invokeExact(addresses[index + PADDING]);
        }
    }
}
