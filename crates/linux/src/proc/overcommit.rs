//! Whether the kernel limits the memory that programs commit.
//!
//! Source: Documentation/mm/overcommit-accounting.rst of the kernel, `vm_commit_limit()`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::meminfo::Meminfo;
use crate::{
    reading::Reading,
    root::Root,
    units::{Bytes, PageSize, Pages},
};

/// Path of the mode.
pub const OVERCOMMIT_MEMORY: &str = "proc/sys/vm/overcommit_memory";
/// The mode in which the kernel refuses memory beyond `CommitLimit`.
pub const STRICT: u64 = 2;

/// The settings of memory overcommitment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overcommit {
    /// `vm.overcommit_memory`: 0 heuristic, 1 always, 2 never.
    pub memory: Reading<u64>,
    /// `vm.overcommit_ratio`: share of the memory outside of pools that counts, in percent.
    pub ratio: Reading<u64>,
    /// `vm.overcommit_kbytes`: the limit without swap, in KiB; 0 if the ratio applies.
    pub kbytes: Reading<u64>,
}

pub fn read(root: &Root) -> Overcommit {
    let number = |path: &str| root.value(path, "a number").into();
    Overcommit {
        memory: number(OVERCOMMIT_MEMORY),
        ratio: number("proc/sys/vm/overcommit_ratio"),
        kbytes: number("proc/sys/vm/overcommit_kbytes"),
    }
}

impl Overcommit {
    pub fn is_strict(&self) -> bool {
        self.memory.known() == Some(&STRICT)
    }

    /// `CommitLimit` once a pool has grown by these pages; `None` if nothing is refused beyond it, or it is unknown.
    pub fn limit_after(&self, meminfo: &Meminfo, pages: Pages, size: PageSize) -> Option<Bytes> {
        let limit = meminfo.commit_limit.known().filter(|_| self.is_strict())?;
        if self.kbytes.known().is_some_and(|kbytes| *kbytes > 0) {
            return Some(*limit);
        }
        let ratio = u128::from(*self.ratio.known()?);
        let less = u128::from((pages * size).0) * ratio / 100;
        Some(limit.saturating_sub(Bytes(u64::try_from(less).unwrap_or(u64::MAX))))
    }

    /// What a growth of a pool means for programs that ask for memory; `None` if nothing changes.
    pub fn words_after(&self, meminfo: &Meminfo, pages: Pages, size: PageSize) -> Option<String> {
        let after = self.limit_after(meminfo, pages, size)?;
        let (before, committed) = (*meminfo.commit_limit.known()?, *meminfo.committed.known()?);
        if after >= before {
            return None;
        }
        let consequence = match committed > after {
            true => {
                "more than that: the kernel will refuse memory to every program that asks for more".to_owned()
            }
            false => format!("so {} are left", after.saturating_sub(committed)),
        };
        Some(format!(
            "vm.overcommit_memory is 2: the pages lower CommitLimit from {before} to {after}, and programs have committed \
             {committed}, {consequence}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{proc::meminfo, testing::tree};

    #[test]
    fn a_pool_lowers_the_limit_by_the_ratio() -> Result<(), Box<dyn std::error::Error>> {
        let says = |mode: &str, kbytes: &str| -> Result<Option<String>, Box<dyn std::error::Error>> {
            let (_dir, root) = tree(&[
                (OVERCOMMIT_MEMORY, mode),
                ("proc/sys/vm/overcommit_ratio", "50\n"),
                ("proc/sys/vm/overcommit_kbytes", kbytes),
                (meminfo::MEMINFO, "CommitLimit: 8388608 kB\nCommitted_AS: 6291456 kB\n"),
            ]);
            Ok(read(&root).words_after(&meminfo::read(&root), Pages(3072), "2m".parse()?))
        };
        let strict = says("2\n", "0\n")?.ok_or("nothing is said")?;
        assert!(strict.contains("from 8GiB to 5GiB") && strict.contains("6GiB, more than that"), "{strict}");
        assert_eq!((says("0\n", "0\n")?, says("2\n", "4096\n")?), (None, None));
        Ok(())
    }
}
