//! NUMA nodes: those with memory, and their CPUs; those of this process.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    hugepages::pools::NODES,
    proc::{fields::Fields, limits::STATUS},
    reading::{Reading, Reason},
    root::{ReadError, Root},
};

/// What a file contains.
const LIST: &str = "a list like 0-3,8";

/// The CPUs and nodes that this process may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Allowed {
    /// The number of CPUs that are online.
    pub cpus: Reading<u32>,
    /// The nodes that its memory may be on.
    pub nodes: Reading<BTreeSet<u32>>,
}

/// Those of older recordings.
impl Default for Allowed {
    fn default() -> Allowed {
        let missing = "not recorded by this version of hugewise";
        Allowed { cpus: Reading::unknown(missing), nodes: Reading::unknown(missing) }
    }
}

/// Reads the CPUs and nodes that this process may use.
pub fn allowed(root: &Root) -> Allowed {
    let status = Fields::read(root, STATUS);
    let list = |key| status.get(key, LIST, parse);
    let online = Reading::from(root.parsed("sys/devices/system/cpu/online", LIST, parse));
    let cpus = list("Cpus_allowed_list").and_then(|allowed| {
        let online = online.into_result()?;
        Ok::<_, Reason>(online.intersection(&allowed).count() as u32)
    });
    Allowed { cpus, nodes: list("Mems_allowed_list") }
}

/// The CPUs of a node, from `/sys/devices/system/node/nodeN/cpulist`; empty for a node without CPUs.
pub fn cpus(root: &Root, node: u32) -> Result<BTreeSet<u32>, ReadError> {
    root.parsed(format!("{NODES}/node{node}/cpulist"), LIST, parse)
}

/// The nodes with memory, from `/sys/devices/system/node/has_memory`.
pub fn with_memory(root: &Root) -> Result<BTreeSet<u32>, ReadError> {
    root.parsed(format!("{NODES}/has_memory"), LIST, parse)
}

/// Parses a list in the kernel's format: `0-3,8`.
pub fn parse(list: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // More than any kernel supports: not a kernel's file.
        if last.checked_sub(first)? >= 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_prints_them() {
        let set = |cpus: &[u32]| Some(cpus.iter().copied().collect());
        assert_eq!(parse("0-3,8"), set(&[0, 1, 2, 3, 8]));
        assert_eq!(parse(""), set(&[]));
        for wrong in ["3-0", "a", "1-", "0-4294967295"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(list in "[0-9,-]{0,20}") {
            let _ = parse(&list);
        }
    }
}
