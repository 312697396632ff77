package io.hugewise.memory;

import java.util.List;
import java.util.stream.Collectors;

/// How memory was got, and why not otherwise. On which pages it is only [Coverage] tells: `thp` is a
/// wish.
///
/// @param backing the backing it was got on
/// @param pageSize the size of the pages that were asked for, in bytes
/// @param fallbacks the better ones that could not be had, in the order they were tried
public record Obtained(Backing backing, long pageSize, List<Fallback> fallbacks) {
    /// Copies the list.
    public Obtained {
        fallbacks = List.copyOf(fallbacks);
    }

    /// {@return was a better backing wanted?}
    public boolean isFallback() {
        return !fallbacks.isEmpty();
    }

    @Override
    public String toString() {
        return backing + fallbacks.stream().map(fallback -> "; " + fallback).collect(Collectors.joining());
    }
}
