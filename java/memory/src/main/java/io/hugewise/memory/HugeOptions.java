package io.hugewise.memory;

import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/// How an arena is to be reserved. Immutable: each method gives changed options.
///
/// ```java
/// HugeOptions.reserve(1L << 30).prefer(Backing.hugetlb(1 << 30), Backing.thp(), Backing.base()).pretouch()
/// ```
public final class HugeOptions {
    private static final List<Backing> BEST_FIRST = List.of(Backing.hugetlb(), Backing.thp(), Backing.base());

    private final long size;
    private final List<Backing> backings;
    private final int node;
    private final int pretouchThreads;
    private final String name;

    private HugeOptions(long size, List<Backing> backings, int node, int pretouchThreads, String name) {
        this.size = size;
        this.backings = backings;
        this.node = node;
        this.pretouchThreads = pretouchThreads;
        this.name = name;
    }

    /// The memory of an arena; on huge pages of a pool, or else on transparent ones, or else on base pages.
    ///
    /// @param size how much, in bytes
    /// @return options
    /// @throws IllegalArgumentException if it is not positive
    public static HugeOptions reserve(long size) {
        if (size <= 0) {
            throw new IllegalArgumentException("an arena has at least one byte, not " + size);
        }
        return new HugeOptions(size, BEST_FIRST, -1, -1, "");
    }

    /// The backings to try, the best first. With a single one the arena is on that one, or it is none
    /// ([#only]).
    ///
    /// @param best the first to try
    /// @param others what to fall back to, in this order
    /// @return changed options
    public HugeOptions prefer(Backing best, Backing... others) {
        List<Backing> all = Stream.concat(
                        Stream.of(best), Stream.of(others))
                .toList();
        return new HugeOptions(size, all, node, pretouchThreads, name);
    }

    /// This backing and no other: where it cannot be had, that is an exception with the numbers.
    ///
    /// @param backing the backing
    /// @return changed options
    public HugeOptions only(Backing backing) {
        return prefer(backing);
    }

    /// All memory comes from this NUMA node, and from no other.
    ///
    /// @param node its number
    /// @return changed options
    /// @throws IllegalArgumentException if it is negative
    public HugeOptions onNode(int node) {
        if (node < 0) {
            throw new IllegalArgumentException("a node is a number from 0 on, not " + node);
        }
        return new HugeOptions(size, backings, node, pretouchThreads, name);
    }

    /// The memory is made present before the arena is given, by as many threads as CPUs may be used. A
    /// shortage is an exception then, and no surprise later.
    ///
    /// @return changed options
    public HugeOptions pretouch() {
        return new HugeOptions(size, backings, node, 0, name);
    }

    /// The same by so many threads.
    ///
    /// @param threads how many
    /// @return changed options
    /// @throws IllegalArgumentException if it is not positive
    public HugeOptions pretouch(int threads) {
        return new HugeOptions(size, backings, node, checkedThreads(threads), name);
    }

    /// A name: for events, metrics, and the mapping in `/proc/PID/maps`.
    ///
    /// @param name the name
    /// @return changed options
    public HugeOptions named(String name) {
        return new HugeOptions(size, backings, node, pretouchThreads, name);
    }

    static int checkedThreads(int threads) {
        if (threads <= 0) {
            throw new IllegalArgumentException("at least one thread, not " + threads);
        }
        return threads;
    }

    /// {@return how much is to be reserved, in bytes}
    public long size() {
        return size;
    }

    /// {@return the backings to try, the best first}
    public List<Backing> backings() {
        return backings;
    }

    /// {@return the NUMA node that all memory is to come from, if one was named}
    public OptionalInt node() {
        return node < 0 ? OptionalInt.empty() : OptionalInt.of(node);
    }

    /// {@return by how many threads the memory is made present at once: 0 for as many as CPUs; empty if it
    /// is not}
    public OptionalInt pretouchThreads() {
        return pretouchThreads < 0 ? OptionalInt.empty() : OptionalInt.of(pretouchThreads);
    }

    /// {@return the name, if there is one}
    public Optional<String> name() {
        return name.isEmpty() ? Optional.empty() : Optional.of(name);
    }

    @Override
    public String toString() {
        String on = backings.stream().map(Backing::toString).collect(Collectors.joining(","));
        return (name.isEmpty() ? "" : name + ": ") + Bytes.text(size) + " on " + on
                + (node < 0 ? "" : ", node " + node) + (pretouchThreads < 0 ? "" : ", pretouched");
    }
}
