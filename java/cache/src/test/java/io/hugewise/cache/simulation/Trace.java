package io.hugewise.cache.simulation;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.LongStream;

/// Requests for keys, and the sizes of their entries.
///
/// @param name its name in tables
/// @param requests keys from 0 to `sizes.length`
/// @param sizes size of the entry of each key in bytes; 1 if the trace has no sizes
record Trace(String name, int[] requests, int[] sizes) {
    private static final int LARGEST = 1 << 30;

    /// A trace of any keys, without sizes.
    static Trace of(String name, LongStream keys) {
        long[] all = keys.toArray();
        long[] ones = new long[all.length];
        Arrays.fill(ones, 1);
        return of(name, all, ones);
    }

    /// A trace of any keys, each with the largest of its sizes.
    static Trace of(String name, long[] keys, long[] sizes) {
        Map<Long, Integer> numbers = new HashMap<>();
        int[] requests = new int[keys.length];
        for (int i = 0; i < keys.length; i++) {
            requests[i] = numbers.computeIfAbsent(keys[i], _ -> numbers.size());
        }
        int[] largest = new int[numbers.size()];
        for (int i = 0; i < keys.length; i++) {
            largest[requests[i]] = Math.max(largest[requests[i]], Math.clamp(sizes[i], 1, LARGEST));
        }
        return new Trace(name, requests, largest);
    }

    boolean hasSizes() {
        return Arrays.stream(sizes).anyMatch(size -> size != 1);
    }

    /// The same requests for entries of equal size.
    Trace withoutSizes() {
        int[] ones = new int[sizes.length];
        Arrays.fill(ones, 1);
        return new Trace(name, requests, ones);
    }

    /// Sizes of all keys, each once.
    long footprint() {
        return Arrays.stream(sizes).asLongStream().sum();
    }
}
