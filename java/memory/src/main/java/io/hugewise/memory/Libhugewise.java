package io.hugewise.memory;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/// The functions of `hugewise.h` that Java calls.
///
/// Each failure is an exception with the library's message. The last error, which belongs to the carrier
/// thread, is read right after the call: a virtual thread does not change its carrier in between.
final class Libhugewise {
    private static final int OK = 0;
    private static final int UNKNOWN = 1;
    private static final Linker LINKER = Linker.nativeLinker();

    private final MethodHandle lastError;
    private final MethodHandle lastErrorCode;
    private final MethodHandle reserveAt;
    private final MethodHandle address;
    private final MethodHandle pageSize;
    private final MethodHandle backing;
    private final MethodHandle fallbacks;
    private final MethodHandle fallbackBacking;
    private final MethodHandle fallbackCause;
    private final MethodHandle coverage;
    private final MethodHandle coverageOf;
    private final MethodHandle pretouch;
    private final MethodHandle release;

    private Libhugewise(SymbolLookup functions) {
        var text = FunctionDescriptor.of(ADDRESS, ADDRESS, JAVA_LONG);
        lastError = function(functions, "hugewise_last_error", FunctionDescriptor.of(ADDRESS));
        lastErrorCode = function(functions, "hugewise_last_error_code", FunctionDescriptor.of(JAVA_INT));
        reserveAt = function(functions, "hugewise_reserve_at", status(JAVA_LONG, ADDRESS, ADDRESS, ADDRESS));
        address = function(functions, "hugewise_region_address", FunctionDescriptor.of(ADDRESS, ADDRESS));
        pageSize = function(functions, "hugewise_region_page_size", FunctionDescriptor.of(JAVA_LONG, ADDRESS));
        backing = function(functions, "hugewise_region_backing", FunctionDescriptor.of(ADDRESS, ADDRESS));
        fallbacks = function(functions, "hugewise_region_fallbacks", FunctionDescriptor.of(JAVA_LONG, ADDRESS));
        fallbackBacking = function(functions, "hugewise_region_fallback_backing", text);
        fallbackCause = function(functions, "hugewise_region_fallback_cause", text);
        coverage = function(functions, "hugewise_region_coverage", status(ADDRESS, ADDRESS, JAVA_LONG, ADDRESS));
        coverageOf = function(functions, "hugewise_coverage", status(ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS));
        pretouch = function(functions, "hugewise_region_pretouch", status(ADDRESS, JAVA_LONG, JAVA_LONG, ADDRESS, ADDRESS));
        release = function(functions, "hugewise_region_release", status(ADDRESS));
    }

    private static FunctionDescriptor status(MemoryLayout... arguments) {
        return FunctionDescriptor.of(JAVA_INT, arguments);
    }

    private static MethodHandle function(SymbolLookup functions, String name, FunctionDescriptor type) {
        MemorySegment found = functions.find(name)
                .orElseThrow(() -> new NativeLibraryException(
                        "libhugewise has no " + name + ": it is older than this jar; use those of the same release"));
        return LINKER.downcallHandle(found, type);
    }

    /// The library, loaded by the first call; empty if it cannot be loaded ([#whyAbsent]). The next call tries again if only
    /// a file descriptor was missing.
    ///
    /// @throws NativeLibraryException as [NativeLibrary#load]; the next call tries again
    static Optional<Libhugewise> find() {
        synchronized (Loading.LOCK) {
            if (!Loading.isDone) {
                NativeLibrary.Loaded loaded = NativeLibrary.load(Platform.current());
                Loading.library = Optional.ofNullable(loaded.functions()).map(Libhugewise::new);
                Loading.why = loaded.why();
                Loading.isDone = loaded.isFinal();
            }
            return Loading.library;
        }
    }

    /// Why [#find] has found none.
    static String whyAbsent() {
        synchronized (Loading.LOCK) {
            return Loading.why;
        }
    }

    private static final class Loading {
        private static final Object LOCK = new Object();

        private static Optional<Libhugewise> library = Optional.empty();
        private static String why = "";
        private static boolean isDone;
    }

    void reserveAt(long size, MemorySegment backings, MemorySegment options, MemorySegment place) {
        try {
            check((int) reserveAt.invokeExact(size, backings, options, place), size);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    MemorySegment address(MemorySegment region) {
        try {
            return (MemorySegment) address.invokeExact(region);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    long pageSize(MemorySegment region) {
        try {
            return (long) pageSize.invokeExact(region);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    String backing(MemorySegment region) {
        try {
            return text((MemorySegment) backing.invokeExact(region));
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    long fallbacks(MemorySegment region) {
        try {
            return (long) fallbacks.invokeExact(region);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    String fallbackBacking(MemorySegment region, long index) {
        try {
            return text((MemorySegment) fallbackBacking.invokeExact(region, index));
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    String fallbackCause(MemorySegment region, long index) {
        try {
            return text((MemorySegment) fallbackCause.invokeExact(region, index));
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    /// Writes the coverage of a region to `pages` and `count`. Returns why it is unknown, or null if it is known.
    @Nullable String coverage(MemorySegment region, MemorySegment pages, long capacity, MemorySegment count) {
        try {
            return unknown((int) coverage.invokeExact(region, pages, capacity, count));
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    /// The same for a segment.
    @Nullable String coverageOf(MemorySegment segment, MemorySegment pages, long capacity, MemorySegment count) {
        try {
            return unknown((int) coverageOf.invokeExact(segment, segment.byteSize(), pages, capacity, count));
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    private @Nullable String unknown(int status) throws Throwable {
        if (status == UNKNOWN) {
            return lastError();
        }
        check(status, 0);
        return null;
    }

    void pretouch(MemorySegment region, long offset, long length, MemorySegment options, MemorySegment pretouched) {
        try {
            check((int) pretouch.invokeExact(region, offset, length, options, pretouched), length);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    void release(MemorySegment region) {
        try {
            check((int) release.invokeExact(region), 0);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    private void check(int status, long requested) throws Throwable {
        if (status != OK) {
            String message = lastError();
            throw new HugeMemoryException(message, requested, (int) lastErrorCode.invokeExact());
        }
    }

    private String lastError() throws Throwable {
        return text((MemorySegment) lastError.invokeExact());
    }

    private static String text(MemorySegment text) {
        return text.reinterpret(Long.MAX_VALUE).getString(0);
    }

    /// Downcalls throw no checked exceptions.
    static RuntimeException thrown(Throwable error) {
        if (error instanceof Error grave) {
            throw grave;
        }
        return error instanceof RuntimeException ours ? ours : new IllegalStateException(error);
    }
}
