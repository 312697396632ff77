package io.hugewise.memory;

import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/// The backing of memory, and why better ones failed. Only [Coverage] has the real page sizes: `thp` takes
/// effect at first touch, if at all.
///
/// @param backing the backing in use
/// @param pageSize the requested page size, in bytes
/// @param fallbacks the better backings that failed, in the order of preference
public record Obtained(Backing backing, long pageSize, List<Fallback> fallbacks) {
    /// Copies the list.
    public Obtained {
        fallbacks = List.copyOf(fallbacks);
    }

    /// The same after better backings that failed before.
    Obtained after(List<Fallback> failed) {
        return new Obtained(backing, pageSize, Stream.concat(failed.stream(), fallbacks.stream()).toList());
    }

    /// {@return whether a better backing failed}
    public boolean isFallback() {
        return !fallbacks.isEmpty();
    }

    @Override
    public String toString() {
        return backing + fallbacks.stream().map(fallback -> "; " + fallback).collect(Collectors.joining());
    }
}
