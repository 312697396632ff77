//! /proc/vmstat: counters of the whole machine. They corroborate; they never attribute.

use std::collections::BTreeMap;

use crate::root::{ReadError, Root};

/// Counters by name, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmStat(BTreeMap<String, u64>);

impl VmStat {
    /// Reads all of them.
    pub fn read(root: &Root) -> Result<VmStat, ReadError> {
        let text = root.read("proc/vmstat")?;
        let counter = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        Ok(VmStat(text.lines().filter_map(counter).collect()))
    }

    /// A counter since boot; nothing where this kernel has it not.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// How much a counter grew since `before`; nothing where this kernel has it not.
    #[must_use]
    pub fn growth(&self, before: &VmStat, name: &str) -> Option<u64> {
        Some(self.0.get(name)?.saturating_sub(*before.0.get(name)?))
    }
}
