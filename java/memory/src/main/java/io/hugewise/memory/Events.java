package io.hugewise.memory;

import io.hugewise.memory.internal.Reported;
import java.lang.ref.Cleaner;
import java.util.function.Supplier;
import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.FlightRecorder;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.Percentage;
import jdk.jfr.Period;
import jdk.jfr.StackTrace;

/// Events of Flight Recorder. No class of an event is loaded before a recording has initialized it, because the first
/// such class takes the JVM 0.1 s or more.
final class Events {
    private static final Reported<HugeArena> ARENAS = new Reported<>(() -> CoverageEvent.class, Events::recordCoverage);

    private Events() {}

    /// Reserves memory, and records this.
    static Region reserve(HugeOptions options, Supplier<Region> reserve) {
        if (!FlightRecorder.isInitialized()) {
            return reserve.get();
        }
        var event = new ReserveEvent();
        event.begin();
        Region region = reserve.get();
        event.commit(options, region.obtained());
        return region;
    }

    static void fallbacks(HugeOptions options, Obtained obtained) {
        if (!FlightRecorder.isInitialized()) {
            return;
        }
        for (Fallback fallback : obtained.fallbacks()) {
            var event = new FallbackEvent();
            if (event.isEnabled()) {
                event.arena = options.name().orElse("");
                event.size = options.size();
                event.wanted = fallback.wanted().toString();
                event.got = obtained.backing().toString();
                event.cause = fallback.cause();
                event.commit();
            }
        }
    }

    /// Populates memory, and records this.
    static Pretouched pretouch(HugeOptions options, Supplier<Pretouched> pretouch) {
        if (!FlightRecorder.isInitialized()) {
            return pretouch.get();
        }
        var event = new PretouchEvent();
        event.begin();
        Pretouched pretouched = pretouch.get();
        event.commit(options, pretouched);
        return pretouched;
    }

    static void release(HugeOptions options) {
        if (!FlightRecorder.isInitialized()) {
            return;
        }
        var event = new ReleaseEvent();
        if (event.isEnabled()) {
            event.arena = options.name().orElse("");
            event.size = options.size();
            event.commit();
        }
    }

    /// Lets the coverage of an arena be recorded.
    ///
    /// @return ends this
    static Cleaner.Cleanable opened(HugeArena arena) {
        return ARENAS.add(arena);
    }

    private static void recordCoverage(HugeArena arena) {
        try {
            new CoverageEvent().commit(arena, arena.coverage());
        } catch (IllegalStateException _) {
            // Its owner has closed it since.
        }
    }

    /// An arena was reserved.
    @Name("io.hugewise.Reserve")
    @Label("Huge Memory Reserved")
    @Category("Hugewise")
    static final class ReserveEvent extends Event {
        @Label("Arena")
        String arena = "";

        @Label("Size")
        @DataAmount
        long size;

        @Label("Backing")
        @Description("Backing of the reservation; only the coverage has the real page sizes")
        String backing = "";

        @Label("Page Size")
        @DataAmount
        long pageSize;

        void commit(HugeOptions options, Obtained obtained) {
            end();
            if (shouldCommit()) {
                arena = options.name().orElse("");
                size = options.size();
                backing = obtained.backing().toString();
                pageSize = obtained.pageSize();
                commit();
            }
        }
    }

    /// A better backing failed.
    @Name("io.hugewise.Fallback")
    @Label("Huge Memory Fallback")
    @Category("Hugewise")
    static final class FallbackEvent extends Event {
        @Label("Arena")
        String arena = "";

        @Label("Size")
        @DataAmount
        long size;

        @Label("Wanted Backing")
        String wanted = "";

        @Label("Backing")
        String got = "";

        @Label("Cause")
        String cause = "";
    }

    /// Memory was populated.
    @Name("io.hugewise.Pretouch")
    @Label("Huge Memory Pretouched")
    @Category("Hugewise")
    static final class PretouchEvent extends Event {
        @Label("Arena")
        String arena = "";

        @Label("Size")
        @DataAmount
        long size;

        @Label("Threads")
        int threads;

        @Label("THP Fallbacks")
        @Description("Machine-wide page faults during the pre-touch that failed to get a huge page; -1 if unknown")
        long thpFallbacks;

        void commit(HugeOptions options, Pretouched pretouched) {
            end();
            if (shouldCommit()) {
                arena = options.name().orElse("");
                size = pretouched.bytes();
                threads = pretouched.threads();
                thpFallbacks = pretouched.thpFallbacks().orElse(-1);
                commit();
            }
        }
    }

    /// An arena was closed, and its memory released.
    @Name("io.hugewise.Release")
    @Label("Huge Memory Released")
    @Category("Hugewise")
    @StackTrace(false)
    static final class ReleaseEvent extends Event {
        @Label("Arena")
        String arena = "";

        @Label("Size")
        @DataAmount
        long size;
    }

    /// The page sizes of an open arena.
    @Name("io.hugewise.Coverage")
    @Label("Huge Memory Coverage")
    @Category("Hugewise")
    @Period("10 s")
    @StackTrace(false)
    static final class CoverageEvent extends Event {
        @Label("Arena")
        String arena = "";

        @Label("Size")
        @DataAmount
        long size;

        @Label("Used")
        @Description("Allocated bytes, including padding for alignment")
        @DataAmount
        long used;

        @Label("Resident on Base Pages")
        @Description("-1 if unknown")
        @DataAmount
        long residentBase;

        @Label("Resident on Huge Pages")
        @Description("-1 if unknown")
        @DataAmount
        long residentHuge;

        @Label("Huge Share")
        @Description("Share of the resident bytes on huge pages; NaN if unknown")
        @Percentage
        double hugeShare;

        @Label("Unknown")
        @Description("Why the coverage is unknown; empty if it is known")
        String unknown = "";

        void commit(HugeArena of, Coverage coverage) {
            arena = of.name().orElse("");
            size = of.size();
            used = of.used();
            switch (coverage) {
                case Coverage.Known known -> {
                    residentBase = known.resident() - known.huge();
                    residentHuge = known.huge();
                    hugeShare = known.hugeShare();
                }
                case Coverage.Unknown why -> {
                    residentBase = -1;
                    residentHuge = -1;
                    hugeShare = Double.NaN;
                    unknown = why.reason();
                }
            }
            commit();
        }
    }
}
