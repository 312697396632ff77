//! The order of the runs: blocks that hold every arm once, each block in its own random order.

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub case: usize,
    pub arm: usize,
    /// Index of the block, from 0; `None` for a warm-up.
    pub block: Option<usize>,
}

/// `times` warm-ups of every arm, in order.
pub fn warm_ups(cases: usize, arms: usize, times: usize) -> Vec<Slot> {
    let of_case = |case| (0..arms).map(move |arm| Slot { case, arm, block: None });
    (0..times).flat_map(|_| (0..cases).flat_map(of_case)).collect()
}

/// `blocks` blocks; within each, the arms of a case run consecutively in random order, so that a ratio
/// compares runs that are close in time.
pub fn blocks(cases: usize, arms: usize, blocks: usize, seed: u64) -> Vec<Slot> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut slots = Vec::with_capacity(cases * arms * blocks);
    for block in 0..blocks {
        for case in 0..cases {
            let mut order: Vec<usize> = (0..arms).collect();
            random.shuffle(&mut order);
            slots.extend(order.into_iter().map(|arm| Slot { case, arm, block: Some(block) }));
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_block_holds_every_arm_of_every_case_once(
            cases in 1usize..4, arms in 1usize..5, n in 0usize..6, seed: u64
        ) {
            let slots = blocks(cases, arms, n, seed);
            prop_assert_eq!(slots.len(), cases * arms * n);
            let seen: BTreeSet<_> = slots.iter().map(|s| (s.block, s.case, s.arm)).collect();
            prop_assert_eq!(seen.len(), slots.len());
            prop_assert_eq!(blocks(cases, arms, n, seed), slots, "a seed decides the order");
        }
    }

    #[test]
    fn the_order_changes_from_block_to_block() {
        let slots = blocks(1, 3, 20, 1);
        let orders: BTreeSet<Vec<usize>> =
            slots.chunks(3).map(|c| c.iter().map(|s| s.arm).collect()).collect();
        assert!(orders.len() > 3, "{orders:?}");
    }
}
