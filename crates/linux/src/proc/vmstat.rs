//! /proc/vmstat: counters of the whole machine. They support an attribution, but do not belong to a single
//! process.

use std::collections::BTreeMap;

use crate::root::{ReadError, Root};

/// The counters by name, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmStat(BTreeMap<String, u64>);

impl VmStat {
    pub fn read(root: &Root) -> Result<VmStat, ReadError> {
        Ok(VmStat::parse(&root.read("proc/vmstat")?))
    }

    /// Parses the text; lines in another format are skipped.
    pub fn parse(text: &str) -> VmStat {
        let counter = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        VmStat(text.lines().filter_map(counter).collect())
    }

    /// The value since boot; `None` if the kernel has no such counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The increase since `before`; `None` if the kernel has no such counter.
    pub fn growth(&self, before: &VmStat, name: &str) -> Option<u64> {
        Some(self.0.get(name)?.saturating_sub(*before.0.get(name)?))
    }

    /// Direct compactions and reclaims in all zones since boot; `None` if the kernel counts neither.
    pub fn stalls(&self) -> Option<u64> {
        let counts =
            self.0.iter().filter(|(name, _)| *name == "compact_stall" || name.starts_with("allocstall_"));
        counts.map(|(_, count)| *count).reduce(u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    #[test]
    fn stalls_of_all_zones_are_one_sum() {
        let stalls = |text| VmStat::read(&tree(&[("proc/vmstat", text)]).1).ok()?.stalls();
        assert_eq!(
            stalls("compact_stall 3\nallocstall_dma 1\nallocstall_movable 5\ncompact_fail 7\n"),
            Some(9)
        );
        assert_eq!(stalls("nr_free_pages 3\n"), None);
    }
}
