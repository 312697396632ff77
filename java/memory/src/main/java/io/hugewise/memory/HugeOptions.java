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

    private static final int ANY_NODE = -1;
    private static final int ALL_NODES = -2;
    private static final int NO_PRETOUCH = -1;
    private static final int ALL_CPUS = 0;

    private final long size;
    // Changed in a copy only, before anybody else sees it.
    private List<Backing> backings = BEST_FIRST;
    private int node = ANY_NODE;
    private int pretouchThreads = NO_PRETOUCH;
    private double requiredShare;
    private boolean isDumped = true;
    private String name = "";

    private HugeOptions(long size) {
        this.size = size;
    }

    private HugeOptions copy() {
        HugeOptions copy = new HugeOptions(size);
        copy.backings = backings;
        copy.node = node;
        copy.pretouchThreads = pretouchThreads;
        copy.requiredShare = requiredShare;
        copy.isDumped = isDumped;
        copy.name = name;
        return copy;
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
        return new HugeOptions(size);
    }

    /// Sets the backings in order of preference. With a single one there is no fallback ([#only]).
    ///
    /// @param best the preferred backing
    /// @param others the fallbacks, in this order
    /// @return changed options
    public HugeOptions prefer(Backing best, Backing... others) {
        HugeOptions changed = copy();
        changed.backings = Stream.concat(Stream.of(best), Stream.of(others)).toList();
        return changed;
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
        HugeOptions changed = copy();
        changed.node = node;
        return changed;
    }

    /// Distributes the pages over all NUMA nodes that this process may use, page by page: for memory that threads
    /// on all nodes use alike.
    ///
    /// @return changed options
    public HugeOptions interleaved() {
        HugeOptions changed = copy();
        changed.node = ALL_NODES;
        return changed;
    }

    /// Populates the memory when the arena is created, with one thread per usable CPU. A shortage is then an
    /// exception instead of a killed process later.
    ///
    /// @return changed options
    public HugeOptions pretouch() {
        HugeOptions changed = copy();
        changed.pretouchThreads = ALL_CPUS;
        return changed;
    }

    /// Populates the memory when the arena is created, with this number of threads.
    ///
    /// @param threads number of threads, at least 1
    /// @return changed options
    /// @throws IllegalArgumentException if the number is not positive
    public HugeOptions pretouch(int threads) {
        HugeOptions changed = copy();
        changed.pretouchThreads = checkedThreads(threads);
        return changed;
    }

    /// Accepts only memory of which at least this share lies on huge pages, as read from the kernel after pre-touch
    /// (which this includes). A backing with less is released, and the next one tried; after the last one, opening the
    /// arena throws a [HugeMemoryException] with all causes.
    ///
    /// Transparent huge pages are otherwise a wish: without free huge pages, the kernel uses base pages. Later, it
    /// may split huge pages, for example to swap them out: [HugeArena#coverage] has the present share.
    ///
    /// @param share from 0 to 1, for example 0.95
    /// @return changed options
    /// @throws IllegalArgumentException if the share is not from 0 to 1
    public HugeOptions requireHuge(double share) {
        if (!(share >= 0 && share <= 1)) {
            throw new IllegalArgumentException("a share is from 0 to 1, not " + share);
        }
        HugeOptions changed = pretouchThreads == NO_PRETOUCH ? pretouch() : copy();
        changed.requiredShare = share;
        return changed;
    }

    /// Leaves the memory out of core dumps (`MADV_DONTDUMP`), which would otherwise be as large as the memory, and
    /// contain its data.
    ///
    /// @return changed options
    public HugeOptions withoutDump() {
        HugeOptions changed = copy();
        changed.isDumped = false;
        return changed;
    }

    /// Sets the name for events, metrics, and the mapping in `/proc/PID/maps`.
    ///
    /// @param name the name
    /// @return changed options
    public HugeOptions named(String name) {
        HugeOptions changed = copy();
        changed.name = name;
        return changed;
    }

    /// The same without the backings up to this one.
    HugeOptions after(Backing failed) {
        HugeOptions changed = copy();
        changed.backings = backings.subList(backings.indexOf(failed) + 1, backings.size());
        return changed;
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

    /// {@return whether the pages are distributed over all NUMA nodes}
    public boolean isInterleaved() {
        return node == ALL_NODES;
    }

    /// {@return the least share on huge pages, from 0 to 1; 0 if none is required}
    public double requiredShare() {
        return requiredShare;
    }

    /// {@return whether core dumps contain the memory}
    public boolean isDumped() {
        return isDumped;
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
                + (isInterleaved() ? ", interleaved" : "") + (node < 0 ? "" : ", node " + node)
                + (pretouchThreads < 0 ? "" : ", pretouched")
                + (requiredShare == 0 ? "" : ", " + Math.round(100 * requiredShare) + " % huge")
                + (isDumped ? "" : ", not in core dumps");
    }
}
