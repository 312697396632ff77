package io.hugewise.cache.simulation;

import io.hugewise.cache.policy.Rank;
import io.hugewise.cache.policy.WindowSize;
import java.util.Arrays;
import java.util.SplittableRandom;

/// W-TinyLFU (Einziger et al., "Adaptive software cache management", Middleware '18) on segments.
///
/// New keys are appended to the log of the window. Its oldest segment competes with the oldest one of the main log:
/// of both, the keys that were requested most often are kept, as many bytes as the main segment had. If few keys of
/// the window win, or not more than by chance, the main segment stays as it is, at times behind the others, and nothing is
/// moved; the ranks of its keys are good for the next segments of the window. Uses are counted in the two bits of the index
/// word, and added to the sketch only when a segment is looked at, so a hit never writes to the sketch. Sketch, window size
/// and ranks are those of the cache.
final class SegmentTinyLfu extends Segments {
    /// Most bytes that are moved for each inserted one.
    static final double MOST_MOVED = 1.3;

    /// A main segment with a greater share of used keys is not evicted, but gets behind all others.
    private static final double MOST_USED = 0.9;
    private static final int MOST_SECOND_CHANCES = 8;

    private final Log window = new Log();
    private final Log main = new Log();
    private final Sketch sketch = new Sketch();
    private final WindowSize target = new WindowSize();
    private final SplittableRandom random = new SplittableRandom(1);
    private int defences;
    /// The segment of main that was not beaten last, and the ranks of its keys.
    private Segment defender;
    private long[] defenderRanks;

    SegmentTinyLfu(long capacity, int[] sizes) {
        super(capacity, sizes);
    }

    @Override
    void expect(long count) {
        sketch.expect(count);
        target.expect(count);
    }

    @Override
    void missed(int key) {
        sketch.increment(hash(key));
        target.missed(hash(key));
    }

    /// The finalizer of MurmurHash3.
    private static long hash(int key) {
        long hash = (key + 1) * 0x9E3779B97F4A7C15L;
        hash = (hash ^ hash >>> 33) * 0xFF51AFD7ED558CCDL;
        hash = (hash ^ hash >>> 33) * 0xC4CEB9FE1A85EC53L;
        return hash ^ hash >>> 33;
    }

    @Override
    void insert(int key) {
        sketch.age();
        window.append(key);
        while (isLarge() && bytes() <= capacity - segmentBytes && !window.closed.isEmpty()) {
            Segment oldest = window.take();
            main.closed.add(oldest);
            main.bytes += oldest.bytes;
        }
    }

    @Override
    long bytes() {
        return window.bytes + main.bytes;
    }

    private boolean isLarge() {
        return window.bytes > target.share() * capacity;
    }

    @Override
    void evict() {
        if (!window.closed.isEmpty() && isLarge() || main.bytes == 0) {
            compete(window.take());
        } else {
            shrinkMain();
        }
    }

    private void compete(Segment of) {
        Segment candidates = new Segment();
        for (int i = 0; i < of.count; i++) {
            int key = of.keys[i];
            remove(key);
            boolean used = settle(key);
            boolean hasRoom = window.bytes + sizes[key] <= target.share() * capacity + segmentBytes / 2.0;
            if (used && hasRoom && sizes[key] <= movable()) {
                move(key, window);
            } else {
                candidates.add(key, sizes[key]);
            }
        }
        long over = bytes() + candidates.bytes - capacity;
        if (over <= 0) {
            keep(rank(candidates, new Segment()), candidates.bytes);
            return;
        }
        boolean isKnown = defender != null && main.closed.peek() == defender;
        Segment victims = isKnown ? main.take() : main.bytes > 0 ? takeMain() : new Segment();
        long[] ranked = isKnown ? withCandidates(candidates, defenderRanks) : rank(candidates, victims);
        boolean isBeaten = isBeaten(ranked, victims.count);
        if (isBeaten && isKnown) {
            ranked = rank(candidates, victims);
            isBeaten = isBeaten(ranked, victims.count);
        }
        if (candidates.count == 0 || isBeaten) {
            keep(ranked, candidates.bytes + victims.bytes - Math.max(over, candidates.bytes));
            return;
        }
        defend(victims, ranked);
        for (int i = 0; i < candidates.count; i++) {
            target.evicted(hash(candidates.keys[i]), false);
        }
    }

    private void defend(Segment segment, long[] ranked) {
        main.bytes += segment.bytes;
        if (++defences % Rank.MOST_DEFENCES == 0) {
            main.closed.add(segment);
        } else {
            main.closed.addFirst(segment);
            defender = segment;
            defenderRanks = Arrays.stream(ranked).filter(SegmentTinyLfu::isMain).toArray();
        }
    }

    private boolean isBeaten(long[] ranked, int mainCount) {
        int first = ranked.length - mainCount;
        double winners = Arrays.stream(ranked, first, ranked.length).filter(rank -> !isMain(rank)).count() - Rank.LEAST_WINNERS * mainCount;
        return winners > 0 && winners > first * Rank.chance(sketch, random, ranked[first] >>> 32);
    }

    /// Merges two segments of main to one.
    private void shrinkMain() {
        Segment victims = takeMain();
        if (main.bytes > 0) {
            Segment others = takeMain();
            for (int i = 0; i < others.count; i++) {
                victims.add(others.keys[i], sizes[others.keys[i]]);
            }
        }
        keep(rank(new Segment(), victims), victims.bytes - segmentBytes);
    }

    private Segment takeMain() {
        for (int chances = Math.min(main.closed.size(), MOST_SECOND_CHANCES); chances > 0; chances--) {
            Segment oldest = main.take();
            int used = 0;
            for (int i = 0; i < oldest.count; i++) {
                used += uses[oldest.keys[i]] > 0 ? 1 : 0;
            }
            if (used <= MOST_USED * oldest.count) {
                return oldest;
            }
            for (int i = 0; i < oldest.count; i++) {
                settle(oldest.keys[i]);
            }
            main.closed.add(oldest);
            main.bytes += oldest.bytes;
        }
        return main.take();
    }

    /// Adds the uses of a key to the sketch; whether there were any.
    private boolean settle(int key) {
        boolean used = uses[key] > 0;
        for (; uses[key] > 0; uses[key]--) {
            sketch.increment(hash(key));
        }
        return used;
    }

    /// All keys, the best last, with their rank in the upper half.
    private long[] rank(Segment candidates, Segment victims) {
        long[] ranked = new long[victims.count];
        for (int i = 0; i < victims.count; i++) {
            settle(victims.keys[i]);
            ranked[i] = ranked(victims.keys[i], true);
        }
        return withCandidates(candidates, ranked);
    }

    private long[] withCandidates(Segment candidates, long[] others) {
        long[] ranked = Arrays.copyOf(others, others.length + candidates.count);
        for (int i = 0; i < candidates.count; i++) {
            ranked[others.length + i] = ranked(candidates.keys[i], false);
        }
        Arrays.sort(ranked);
        return ranked;
    }

    private long ranked(int key, boolean isMain) {
        return (long) Rank.of(sketch.frequency(hash(key)), isMain) << 32 | key;
    }

    private void keep(long[] ranked, long bytes) {
        long room = Math.min(bytes, movable());
        for (int i = ranked.length - 1; i >= 0; i--) {
            int key = (int) ranked[i];
            remove(key);
            if (sizes[key] <= room) {
                room -= sizes[key];
                move(key, main);
            } else {
                target.evicted(hash(key), isMain(ranked[i]));
            }
        }
    }

    private static boolean isMain(long ranked) {
        return Rank.isMain(ranked >>> 32);
    }
}
