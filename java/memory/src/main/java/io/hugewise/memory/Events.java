package io.hugewise.memory;

import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;

/// Events of Flight Recorder.
final class Events {
    private Events() {}

    static void fallbacks(HugeOptions options, Obtained obtained) {
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

    static void release(HugeOptions options) {
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
