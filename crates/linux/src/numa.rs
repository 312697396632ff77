//! NUMA nodes: those with memory, and their CPUs.

use std::collections::BTreeSet;

use crate::{
    hugepages::pools::NODES,
    root::{ReadError, Root},
};

/// The CPUs of a node, from `/sys/devices/system/node/nodeN/cpulist`; empty for a node without CPUs.
pub fn cpus(root: &Root, node: u32) -> Result<BTreeSet<u32>, ReadError> {
    root.parsed(format!("{NODES}/node{node}/cpulist"), "a list like 0-3,8", parse)
}

/// The nodes with memory, from `/sys/devices/system/node/has_memory`.
pub fn with_memory(root: &Root) -> Result<BTreeSet<u32>, ReadError> {
    root.parsed(format!("{NODES}/has_memory"), "a list like 0-3,8", parse)
}

/// Parses a list in the kernel's format: `0-3,8`.
fn parse(list: &str) -> Option<BTreeSet<u32>> {
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
