package io.hugewise.memory;

import java.time.Duration;
import java.util.OptionalLong;

/// Result of a pre-touch.
///
/// @param bytes bytes of all requested pages; all are resident
/// @param elapsed duration
/// @param threads number of threads that worked
/// @param thpFallbacks page faults of the whole machine during that time that failed to get a transparent
///     huge page; empty if the kernel does not report it
public record Pretouched(long bytes, Duration elapsed, int threads, OptionalLong thpFallbacks) {}
