package io.hugewise.memory;

import java.util.function.Supplier;
import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.FlightRecorder;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;

/// Events of Flight Recorder. No class of an event is loaded before a recording has initialized it, because the first
/// such class takes the JVM 0.1 s or more.
final class Events {
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
}
