package io.hugewise.cache;

import io.hugewise.cache.Manifest.Use;
import io.hugewise.cache.policy.Rank;
import io.hugewise.cache.policy.WindowSize;
import java.util.Arrays;
import java.util.SplittableRandom;
import org.jspecify.annotations.Nullable;

/// Chooses which entries stay, by W-TinyLFU (Einziger et al., "Adaptive software cache management", Middleware '18) on
/// segments, which benchmarks/cache compares with other policies.
///
/// A segment of the window competes with the oldest one of the main log: of both, the entries that were requested most
/// often are kept, as many bytes as a segment has. If few entries of the window win, or not more than by chance, the main
/// segment stays as it is. Of segments whose entries have many chunks, the worst entries are dropped, and the others stay
/// where they are.
///
/// Methods need the lock of evictions.
final class Admission {
    private static final int NONE = -1;
    /// A main segment with a greater share of used entries is not evicted, but gets behind all others.
    private static final double MOST_USED = 0.9;
    private static final int MOST_SECOND_CHANCES = 8;

    private final Segments segments;
    private final LiveEntries live;
    private final Emptying emptying;
    private final Sketch sketch;
    private final WindowSize target;
    private final Compaction compaction;
    private final Log window;
    private final Log main;
    private final SplittableRandom random = new SplittableRandom();
    private int defences;
    private @Nullable Defender defender;

    /// A main segment that was not beaten, and the ranks of its entries, which are good for some more segments of the window.
    private record Defender(int segment, Use use, long order, Ranking ranks) {}

    Admission(Segments segments, LiveEntries live, Emptying emptying, Sketch sketch, WindowSize target, Compaction compaction, Log window, Log main) {
        this.segments = segments;
        this.live = live;
        this.emptying = emptying;
        this.sketch = sketch;
        this.target = target;
        this.compaction = compaction;
        this.window = window;
        this.main = main;
    }

    // --- Window ------------------------------------------------------------------------------------

    /// Empties a segment of the window, which was taken from its log, or drops entries.
    ///
    /// @param hasRoom whether used entries may stay in the window
    void compete(int segment, boolean hasRoom) {
        var all = new Ranking(segments);
        Ranking known = takeDefender();
        int victims;
        if (known != null) {
            victims = emptying.take(main.closed);
            all.addMain(known);
        } else {
            victims = main.closed.isEmpty() ? NONE : takeMain(all);
        }
        if (victims == NONE ? haveManyChunks(segment) : haveManyChunks(segment, victims)) {
            competeInPlace(segment, victims, all);
            return;
        }
        live.forEach(segment, (entry, hash) -> {
            int uses = live.settle(entry, hash);
            boolean staysInWindow = hasRoom && uses > 0 && live.layout.size(entry) <= compaction.movable();
            if (uses >= 0 && !(staysInWindow && compaction.move(entry, hash, window))) {
                all.add(Rank.of(sketch.frequency(hash), false), entry);
            }
        });
        if (victims != NONE) {
            boolean isBeaten = isBeaten(all);
            if (isBeaten && known != null) {
                all.removeMain();
                rank(victims, true, all);
                isBeaten = isBeaten(all);
            }
            if (!isBeaten) {
                defend(victims, all);
                dropCandidates(all);
                emptying.retire(segment);
                return;
            }
        }
        keep(all, segments.size);
        // Not earlier: after an error, entries that are left stay where they are.
        emptying.retire(segment);
        if (victims != NONE) {
            emptying.retire(victims);
        }
    }

    /// Whether more entries of the window win than would if none of them had been requested before.
    private boolean isBeaten(Ranking ranking) {
        double winners = ranking.winners() - Rank.LEAST_WINNERS * ranking.mainSize();
        return winners > 0 && winners > (ranking.size() - ranking.mainSize()) * Rank.chance(sketch, random, ranking.rankToWin());
    }

    /// Returns a segment to the main log.
    private void defend(int segment, Ranking ranking) {
        if (++defences % Rank.MOST_DEFENCES == 0) {
            emptying.returnTo(main.closed, segment);
        } else {
            var ranks = new Ranking(segments);
            ranks.addMain(ranking);
            emptying.returnFirst(main.closed, segment);
            defender = new Defender(segment, segments.manifest.use(segment), segments.manifest.order(segment), ranks);
        }
    }

    /// Ranks of the entries of the oldest main segment, if they are known.
    private @Nullable Ranking takeDefender() {
        Defender last = defender;
        defender = null;
        if (last == null || main.closed.isEmpty() || main.closed.get(0) != last.segment) {
            return null;
        }
        // Or it may be a segment that has other entries since.
        boolean isSame = segments.manifest.use(last.segment) == last.use && segments.manifest.order(last.segment) == last.order;
        return isSame ? last.ranks : null;
    }

    private void competeInPlace(int segment, int victims, Ranking all) {
        rank(segment, false, all);
        if (victims != NONE) {
            emptying.returnTo(main.closed, victims);
        }
        boolean isBeaten = victims != NONE && !dropWorst(all);
        if (isBeaten) {
            emptying.returnFirst(window.closed, segment);
        } else {
            emptying.returnTo(main.closed, segment);
        }
    }

    private boolean haveManyChunks(int... of) {
        return Arrays.stream(of).mapToLong(segment -> segments.pool.field(segment, Segments.PARTS)).sum() >= Chunks.PER_SEGMENT;
    }

    // --- Main log ----------------------------------------------------------------------------------

    /// Merges two segments of the main log to one, or drops entries.
    void shrinkMain() {
        var all = new Ranking(segments);
        int[] merged = new int[Math.min(main.closed.size(), 2)];
        Arrays.setAll(merged, _ -> takeMain(all));
        if (haveManyChunks(merged)) {
            for (int segment : merged) {
                emptying.returnTo(main.closed, segment);
            }
            dropWorst(all);
            return;
        }
        keep(all, merged.length == 1 ? segments.pool.field(merged[0], Segments.LIVE) / 2 : segments.size);
        for (int segment : merged) {
            emptying.retire(segment);
        }
    }

    /// Takes the oldest segment of the main log that may be evicted, and adds its entries to a ranking.
    ///
    /// @return its number
    private int takeMain(Ranking ranking) {
        for (int chances = Math.min(main.closed.size(), MOST_SECOND_CHANCES); ; chances--) {
            int oldest = emptying.take(main.closed);
            int before = ranking.size();
            int used = rank(oldest, true, ranking);
            if (chances == 0 || used <= MOST_USED * (ranking.size() - before)) {
                return oldest;
            }
            ranking.cut(before);
            emptying.returnTo(main.closed, oldest);
        }
    }

    /// Adds the entries of a segment to a ranking.
    ///
    /// @return how many of them were used
    private int rank(int segment, boolean isMain, Ranking ranking) {
        int[] used = new int[1];
        live.forEach(segment, (entry, hash) -> {
            int uses = live.settle(entry, hash);
            if (uses >= 0) {
                ranking.add(Rank.of(sketch.frequency(hash), isMain), entry);
                used[0] += uses > 0 ? 1 : 0;
            }
        });
        return used[0];
    }

    // --- Entries -----------------------------------------------------------------------------------

    /// Moves the best entries to the main log, at most so many bytes, and drops the others.
    private void keep(Ranking ranking, long bytes) {
        ranking.sort();
        long room = Math.min(bytes, compaction.movable());
        for (int i = ranking.size() - 1; i >= 0; i--) {
            long entry = ranking.entry(i);
            long needed = live.layout.size(entry);
            if (!live.isExpired(entry) && needed <= room && compaction.move(entry, live.hash(entry), main)) {
                room -= needed;
            } else {
                drop(ranking, i);
            }
        }
    }

    private void dropCandidates(Ranking ranking) {
        for (int i = 0; i < ranking.size(); i++) {
            if (!ranking.isMain(i)) {
                drop(ranking, i);
            }
        }
    }

    /// Drops the entries with the lowest ranks, until they had as many bytes as a segment.
    ///
    /// @return whether one of them was in the main log
    private boolean dropWorst(Ranking ranking) {
        ranking.sort();
        boolean isOfMain = false;
        long left = segments.size;
        for (int i = 0; i < ranking.size() && left > 0; i++) {
            isOfMain |= ranking.isMain(i);
            left -= live.bytes(ranking.entry(i));
            drop(ranking, i);
        }
        return isOfMain;
    }

    private void drop(Ranking ranking, int place) {
        long entry = ranking.entry(place);
        long hash = live.hash(entry);
        if (!live.isExpired(entry)) {
            target.evicted(hash, ranking.isMain(place));
        }
        live.drop(entry, hash);
    }
}
