//! Sets of addresses as ranges.

/// A set of numbers, stored as sorted ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Count of numbers in the set.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// Count of numbers in `start..end` that are not in the set.
    pub fn missing(&self, start: u64, end: u64) -> u64 {
        let inside = |&(from, to): &(u64, u64)| to.min(end).saturating_sub(from.max(start));
        end.saturating_sub(start) - self.0.iter().map(inside).sum::<u64>()
    }

    /// Adds `start..end`.
    pub fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        self.0.retain(|&(from, to)| {
            let apart = to < start || end < from;
            if !apart {
                (start, end) = (start.min(from), end.max(to));
            }
            apart
        });
        let at = self.0.partition_point(|&(from, _)| from < start);
        self.0.insert(at, (start, end));
    }

    /// Removes `start..end`.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start < end {
            let left = |&(from, to): &(u64, u64)| [(from, to.min(start)), (from.max(end), to)];
            self.0 = self.0.iter().flat_map(left).filter(|(from, to)| from < to).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_equal_a_plain_set(steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..60), 0..30)) {
            let (mut ranges, mut plain) = (Ranges::default(), BTreeSet::new());
            for (add, start, end) in steps {
                let missing = (start..end).filter(|n| !plain.contains(n)).count() as u64;
                prop_assert_eq!(ranges.missing(start, end), missing);
                if add {
                    ranges.insert(start, end);
                    plain.extend(start..end);
                } else {
                    ranges.remove(start, end);
                    plain.retain(|n| !(start..end).contains(n));
                }
                prop_assert_eq!(ranges.count(), plain.len() as u64);
                prop_assert!(ranges.0.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", ranges);
            }
        }
    }
}
