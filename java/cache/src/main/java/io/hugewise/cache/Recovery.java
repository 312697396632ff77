package io.hugewise.cache;

import io.hugewise.cache.Manifest.Use;
import io.hugewise.cache.policy.LinearHashing;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.stream.IntStream;

/// Finds the intact entries of a file that a killed process has left, or that another program has changed. Nothing in it
/// needs to be right.
///
/// The index decides what is an entry: it refers to one only when it is written, and not any more before its memory is
/// reused. So an entry that the index has and whose checksum is right is whole, and the newest one of its key. First,
/// each chain of buckets is checked, in which words may be lost or twice; then each segment is read from its start. If
/// fewer entries are found there than the index has, or one is damaged, the words of the index are followed instead, and
/// the entries that are intact are moved together at the start of the segment.
final class Recovery {
    /// Words of the index that are on the heap at the same time.
    private static final int GROUP_WORDS = 1 << 20;

    private final Segments segments;
    private final Index index;
    private final Buckets buckets;
    private final Entries layout;
    private final long seed;
    /// Number of words of the index that refer to each segment.
    private final AtomicIntegerArray words;
    private final BitSet usedOverflow = new BitSet();
    /// Used chunks.
    private final BitSet parts = new BitSet();
    /// Overflow buckets of the chain that is being checked.
    private int chainLength;

    Recovery(Segments segments, Index index, Buckets buckets, Entries layout) {
        this.segments = segments;
        this.index = index;
        this.buckets = buckets;
        this.layout = layout;
        this.seed = segments.manifest.seed();
        this.words = new AtomicIntegerArray(segments.pool.count());
    }

    /// Removes from the index what is not an entry, and frees the segments without entries.
    ///
    /// @return the number of entries
    long run() {
        checkChains();
        int[] damaged = IntStream.range(0, words.length()).parallel()
                .filter(segment -> words.get(segment) > 0 && !isRead(segment)).toArray();
        for (int from = 0; from < damaged.length; ) {
            BitSet group = new BitSet();
            long count = 0;
            while (from < damaged.length && count < GROUP_WORDS) {
                count += words.get(damaged[from]);
                group.set(damaged[from++]);
            }
            salvage(group);
        }
        if (damaged.length > 0) {
            checkChains();
        }
        buckets.setUsedOverflow(usedOverflow);
        long entries = 0;
        for (int segment = 0; segment < words.length(); segment++) {
            Use use = segments.manifest.use(segment);
            if (use == Use.PART) {
                segments.pool.setField(segment, Segments.STATE, Chunks.state(usedChunks(segment)));
            }
            boolean isUsed = use == Use.PART ? usedChunks(segment) != 0 : words.get(segment) > 0 || !isLog(use);
            if (use != Use.FREE && !isUsed) {
                segments.release(segment);
            }
            entries += words.get(segment);
        }
        return entries;
    }

    private long usedChunks(int segment) {
        long used = 0;
        for (int place = 0; place < Chunks.PER_SEGMENT; place++) {
            used |= parts.get(segment * Chunks.PER_SEGMENT + place) ? 1L << place : 0;
        }
        return used;
    }

    private static boolean isLog(Use use) {
        return use == Use.WINDOW || use == Use.MAIN;
    }

    // --- Buckets -----------------------------------------------------------------------------------

    private void checkChains() {
        usedOverflow.clear();
        for (int segment = 0; segment < words.length(); segment++) {
            words.set(segment, 0);
        }
        var chain = new Chain(buckets);
        for (int number = 0; number < buckets.count(); number++) {
            long bucket = buckets.at(number);
            chainLength = 0;
            chain.collect(bucket, this::isUnusedLink);
            boolean isComplete = chain.isComplete();
            int before = chain.count();
            for (int i = before - 1; i >= 0; i--) {
                if (!isEntry(chain, i, number)) {
                    chain.remove(i);
                }
            }
            if (!isComplete || chain.count() < before) {
                chain.write(bucket);
                while (chain.links() > 0) {
                    usedOverflow.clear((int) IndexWord.overflowBucket(chain.takeLink()));
                }
            }
            for (int i = 0; i < chain.count(); i++) {
                words.incrementAndGet(segment(chain.word(i)));
            }
        }
    }

    private int segment(long word) {
        return (int) (IndexWord.offset(word) / segments.size);
    }

    /// Whether no chain has had this overflow bucket yet.
    private boolean isUnusedLink(long link) {
        long number = IndexWord.overflowBucket(link);
        if (number >= buckets.overflowCapacity() || usedOverflow.get((int) number) || ++chainLength == Index.LONGEST_CHAIN) {
            return false;
        }
        usedOverflow.set((int) number);
        return true;
    }

    private boolean isEntry(Chain chain, int place, int bucket) {
        long word = chain.word(place);
        int segment = segment(word);
        if (segment >= words.length() || !isLog(segments.manifest.use(segment))) {
            return false;
        }
        // The lowest bits of the hash are those of the bucket's number.
        int hash = (int) (IndexWord.hashBits(word) | (bucket & (1 << IndexWord.TAG_SHIFT) - 1));
        boolean isHere = LinearHashing.number(hash, buckets.count()) == bucket;
        for (int i = 0; i < place; i++) {
            isHere &= !IndexWord.isSame(chain.word(i), word);
        }
        return isHere;
    }

    // --- Segments ----------------------------------------------------------------------------------

    /// Reads a segment from its start until as many entries are found as the index has.
    ///
    /// @return whether they were found
    private boolean isRead(int segment) {
        long start = segments.address(segment);
        long position = 0;
        long live = 0;
        long lastExpiry = 0;
        int partsOfAll = 0;
        List<Integer> found = new ArrayList<>();
        for (int missing = words.get(segment); missing > 0; ) {
            long entry = start + position;
            long size = layout.checkedSize(entry, segments.size - position);
            if (size == 0) {
                return false;
            }
            if (index.place(entry, Hash.of(layout.keyMemory(entry), seed)) != 0) {
                if (!isWhole(entry)) {
                    return false;
                }
                missing--;
                live += size;
                lastExpiry = Math.max(lastExpiry, Integer.toUnsignedLong(layout.expiry(entry)));
                found.addAll(partsOf(entry));
            }
            partsOfAll += layout.parts(entry);
            position += size;
        }
        setFields(segment, position, live, lastExpiry, partsOfAll);
        return areParts(found);
    }

    private void setFields(int segment, long end, long live, long lastExpiry, int partsOfAll) {
        segments.pool.setField(segment, Segments.STATE, Log.closedAt(end));
        segments.pool.setField(segment, Segments.LIVE, live);
        segments.pool.setField(segment, Segments.LAST_EXPIRY, lastExpiry);
        segments.pool.setField(segment, Segments.PARTS, partsOfAll);
    }

    /// Keeps the intact entries of damaged segments. Words of others become 0, so the chains must be checked again.
    private void salvage(BitSet damaged) {
        Map<Integer, List<Long>> places = new ConcurrentHashMap<>();
        var chain = new Chain(buckets);
        for (int number = 0; number < buckets.count(); number++) {
            chain.forEachPlace(buckets.at(number), place -> {
                int segment = segment(Memory.word(place));
                if (damaged.get(segment)) {
                    places.computeIfAbsent(segment, _ -> new ArrayList<>()).add(place);
                }
            });
        }
        places.entrySet().parallelStream().forEach(of -> salvage(of.getKey(), of.getValue()));
    }

    /// Moves the intact entries of a segment together at its start.
    ///
    /// @param places addresses of the words that refer to the segment
    private void salvage(int segment, List<Long> places) {
        places.sort(Comparator.comparingLong(place -> IndexWord.offset(Memory.word(place))));
        long start = segments.address(segment);
        long end = start;
        long lastExpiry = 0;
        int partsOfAll = 0;
        for (long place : places) {
            long entry = segments.base + IndexWord.offset(Memory.word(place));
            long size = entry < end ? 0 : layout.checkedSize(entry, start + segments.size - entry);
            long hash = size == 0 ? 0 : Hash.of(layout.keyMemory(entry), seed);
            if (size == 0 || index.place(entry, hash) != place || !isWhole(entry) || !areParts(partsOf(entry))) {
                Memory.setWord(place, 0);
                continue;
            }
            Memory.copy(entry, end, size);
            index.replace(place, end, hash, 0);
            lastExpiry = Math.max(lastExpiry, Integer.toUnsignedLong(layout.expiry(end)));
            partsOfAll += layout.parts(end);
            end += size;
        }
        setFields(segment, end - start, end - start, lastExpiry, partsOfAll);
    }

    private List<Integer> partsOf(long entry) {
        return IntStream.range(0, layout.parts(entry)).mapToObj(number -> layout.part(entry, number)).toList();
    }

    private boolean isWhole(long entry) {
        for (int i = layout.parts(entry) - 1; i >= 0; i--) {
            if (!isPart(layout.part(entry, i))) {
                return false;
            }
        }
        return layout.checksum(entry) == Checksum.of(entry, layout, segments);
    }

    private boolean isPart(int chunk) {
        int segment = chunk / Chunks.PER_SEGMENT;
        return chunk >= 0 && segment < words.length() && segments.manifest.use(segment) == Use.PART;
    }

    /// Marks chunks as parts of large values, unless one of them belongs to another value.
    private synchronized boolean areParts(List<Integer> found) {
        for (int i = 0; i < found.size(); i++) {
            int part = found.get(i);
            if (parts.get(part)) {
                found.subList(0, i).forEach(parts::clear);
                return false;
            }
            parts.set(part);
        }
        return true;
    }
}
