package io.hugewise.memory;

import java.time.Duration;
import java.util.OptionalLong;

/// What it took to make memory present.
///
/// @param bytes the bytes of all pages that were asked for; all are present
/// @param elapsed how long it took
/// @param threads how many threads worked
/// @param thpFallbacks page faults that wanted a transparent huge page and got none, of the whole
///     machine in that time; empty where the kernel does not say
public record Pretouched(long bytes, Duration elapsed, int threads, OptionalLong thpFallbacks) {}
