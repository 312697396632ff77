package io.hugewise.memory;

import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/// Options of an arena. Immutable: a method that sets an option returns changed options.
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

    /// Options for an arena on huge pages of a pool, else on transparent huge pages, else on base pages.
    ///
    /// @param size size in bytes
    /// @return options
    /// @throws IllegalArgumentException if the size is not positive
    public static HugeOptions reserve(long size) {
        if (size <= 0) {
            throw new IllegalArgumentException("an arena has at least one byte, not " + size);
        }
        return new HugeOptions(size, BEST_FIRST, -1, -1, "");
    }

    /// Sets the backings in order of preference. With a single one there is no fallback ([#only]).
    ///
    /// @param best the preferred backing
    /// @param others the fallbacks, in this order
    /// @return changed options
    public HugeOptions prefer(Backing best, Backing... others) {
        List<Backing> all = Stream.concat(
                        Stream.of(best), Stream.of(others))
                .toList();
        return new HugeOptions(size, all, node, pretouchThreads, name);
    }

    /// Sets the only backing: if it is not available, opening the arena throws a [HugeMemoryException] with the cause.
    ///
    /// @param backing the backing
    /// @return changed options
    public HugeOptions only(Backing backing) {
        return prefer(backing);
    }

    /// Binds all memory to a NUMA node.
    ///
    /// @param node number of the node, from 0
    /// @return changed options
    /// @throws IllegalArgumentException if the number is negative
    public HugeOptions onNode(int node) {
        if (node < 0) {
            throw new IllegalArgumentException("a node is a number from 0 on, not " + node);
        }
        return new HugeOptions(size, backings, node, pretouchThreads, name);
    }

    /// Populates the memory when the arena is created, with one thread per usable CPU. A shortage is then an
    /// exception instead of a killed process later.
    ///
    /// @return changed options
    public HugeOptions pretouch() {
        return new HugeOptions(size, backings, node, 0, name);
    }

    /// Populates the memory when the arena is created, with this number of threads.
    ///
    /// @param threads number of threads, at least 1
    /// @return changed options
    /// @throws IllegalArgumentException if the number is not positive
    public HugeOptions pretouch(int threads) {
        return new HugeOptions(size, backings, node, checkedThreads(threads), name);
    }

    /// Sets the name for events, metrics, and the mapping in `/proc/PID/maps`.
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

    /// {@return the size in bytes}
    public long size() {
        return size;
    }

    /// {@return the backings in order of preference}
    public List<Backing> backings() {
        return backings;
    }

    /// {@return the NUMA node that the memory is bound to; empty if it is not bound}
    public OptionalInt node() {
        return node < 0 ? OptionalInt.empty() : OptionalInt.of(node);
    }

    /// {@return the number of pre-touch threads: 0 for one per usable CPU; empty without pre-touch}
    public OptionalInt pretouchThreads() {
        return pretouchThreads < 0 ? OptionalInt.empty() : OptionalInt.of(pretouchThreads);
    }

    /// {@return the name; empty if there is none}
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
