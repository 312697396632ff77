//! Knees of simulated TLBs of known size, with sets, ways and replacement, visited in the order of the chase.

use super::{
    curve::{Point, grid, within_a_step},
    knees::knees,
};

/// Replacement policy: which entry of a full set is evicted.
#[derive(Clone, Copy, PartialEq)]
enum ReplacementPolicy {
    Oldest,
    Any,
}

struct Simulated {
    /// Pages in each set, most recently used last.
    sets: Vec<Vec<usize>>,
    ways: usize,
    replaced: ReplacementPolicy,
}

impl Simulated {
    fn new(entries: usize, ways: usize, replaced: ReplacementPolicy) -> Simulated {
        Simulated { sets: vec![Vec::new(); entries / ways], ways, replaced }
    }

    /// Whether the set holds `page`; inserts it if not.
    fn hits(&mut self, page: usize, random: &mut fastrand::Rng) -> bool {
        let sets = self.sets.len();
        let set = &mut self.sets[page % sets];
        let found = set.iter().position(|held| *held == page);
        let leaves = match found {
            Some(at) => Some(at),
            None if set.len() < self.ways => None,
            None if self.replaced == ReplacementPolicy::Any => Some(random.usize(0..self.ways)),
            None => Some(0),
        };
        if let Some(at) = leaves {
            set.remove(at);
        }
        set.push(page);
        found.is_some()
    }
}

/// The curve of two levels; a miss of the first costs 2 ns, a miss of both 16 ns.
fn curve(levels: [(usize, usize); 2], replaced: ReplacementPolicy) -> Vec<Point> {
    const WARM: usize = 3;
    const LAPS: usize = 8;
    let mut random = fastrand::Rng::with_seed(7);
    let points = grid(8192).into_iter().map(|count| {
        let [mut first, mut second] = levels.map(|(entries, ways)| Simulated::new(entries, ways, replaced));
        let mut order: Vec<usize> = (0..count).collect();
        random.shuffle(&mut order);
        let mut cost = 0.0;
        for lap in 0..WARM + LAPS {
            for page in &order {
                let ns = match (first.hits(*page, &mut random), second.hits(*page, &mut random)) {
                    (true, _) => 0.0,
                    (false, true) => 2.0,
                    (false, false) => 16.0,
                };
                cost += if lap < WARM { 0.0 } else { ns };
            }
        }
        Point { pages: count as u64, ns: cost / (count * LAPS) as f64, spread: 0.0 }
    });
    points.collect()
}

const TLBS: [[(usize, usize); 2]; 5] = [
    [(64, 4), (1536, 12)],
    [(96, 6), (2048, 16)],
    [(32, 32), (1024, 8)],
    [(64, 64), (2048, 8)],
    [(48, 48), (1280, 5)],
];

fn found(levels: [(usize, usize); 2], replaced: ReplacementPolicy) -> Vec<u64> {
    knees(&curve(levels, replaced), 1.0).iter().map(|knee| knee.pages).collect()
}

#[test]
fn the_entries_are_found_where_the_oldest_makes_room() {
    for levels in TLBS {
        let found = found(levels, ReplacementPolicy::Oldest);
        let right = found.len() == 2
            && found.iter().zip(levels).all(|(pages, (entries, _))| within_a_step(*pages, entries as u64));
        assert!(right, "{levels:?}: {found:?}");
    }
}

/// Random replacement keeps some pages by chance, so that the rise is slower and its middle lies higher.
#[test]
fn replacement_at_random_is_found_higher() {
    for levels in TLBS {
        let found = found(levels, ReplacementPolicy::Any);
        let right = found.len() == 2
            && found
                .iter()
                .zip(levels)
                .all(|(pages, (entries, _))| (1.0..1.40).contains(&(*pages as f64 / entries as f64)));
        assert!(right, "{levels:?}: {found:?}");
    }
}
