//! Readings of this machine that concern a message, each with its source.

use std::path::{Path, PathBuf};

use hugewise_linux::{
    cgroup::Limit,
    hugepages::{
        pools,
        thp::{self, Thp},
    },
    proc::limits::{SHM_GROUP, SHMMAX},
    reading::Reading,
    units::Pages,
};

use super::{
    Family,
    explain::{ENOMEM, Explainer},
};

impl Explainer<'_> {
    /// Readings that concern the message; may be empty.
    pub(super) fn evidence(&self) -> Vec<String> {
        let facts = self.facts;
        if matches!(self.found.message.family, Family::BusError | Family::CommitMemory) {
            let captured = self.captured();
            if !captured.is_empty() {
                return captured;
            }
        }
        match self.found.message.family {
            Family::PoolEmpty
            | Family::PoolShort
            | Family::KindNotConfigured
            | Family::HeapCommit
            | Family::HeapLowered
            | Family::CommitFailed
            | Family::BootPool
            | Family::OutOfMemory
            | Family::ProgramPool
            | Family::NoNode => self.pool_evidence(),
            Family::BusError | Family::ContainerLimit => self.limit_evidence(),
            Family::CommitMemory => Vec::new(),
            Family::SharedMemory if self.found.message.errno == Some(ENOMEM) => self.pool_evidence(),
            Family::SharedMemory | Family::MemlockRule => vec![
                reported("vm.hugetlb_shm_group", &facts.limits.hugetlb_shm_group, SHM_GROUP),
                reported("kernel.shmmax", &facts.limits.shmmax, SHMMAX),
            ],
            Family::ThpOff | Family::ProgramThp => {
                vec![setting("THP", facts.thp.pmd_enabled(), &facts.thp, "enabled")]
            }
            Family::ShmemThpOff => vec![self.shmem()],
            Family::LargePagesOff | Family::LargePagesOn => {
                let mut evidence = self.pool_evidence();
                evidence.push(setting("THP", facts.thp.pmd_enabled(), &facts.thp, "enabled"));
                evidence.push(self.shmem());
                evidence
            }
            Family::PageSizeIgnored | Family::PageSizeRefused | Family::BootParameter => {
                vec![format!("page sizes of this machine's pools: {}", self.sizes())]
            }
            Family::NoBlock => self.obtainable().into_iter().collect(),
            Family::UnknownFlag | Family::ProgramSetting | Family::Information | Family::Unknown => {
                Vec::new()
            }
        }
    }

    fn shmem(&self) -> String {
        let thp = &self.facts.thp;
        setting("THP of shared memory", thp.pmd_shmem_enabled(), thp, "shmem_enabled")
    }

    fn pool_evidence(&self) -> Vec<String> {
        let Some(size) = self.size() else {
            let reason = self.facts.meminfo.default_size.reason().unwrap_or_default();
            return vec![format!("the default huge page size is unknown: {reason}")];
        };
        let mut evidence = Vec::new();
        evidence.push(match self.pool(size) {
            Some(pool) => format!(
                "the pool of {size} pages has {} now, {} of them available [{}]",
                pool.total,
                pool.available(),
                absolute(&pools::folder(size, None))
            ),
            None => match self.facts.pools.reason() {
                Some(reason) => format!("the pools could not be read: {reason}"),
                None => format!("this machine has no pool of {size} pages; it has: {}", self.sizes()),
            },
        });
        evidence.extend(self.limit_evidence());
        evidence.extend(self.obtainable());
        evidence
    }

    /// Limits of the caller's control groups on hugetlb pages.
    fn limit_evidence(&self) -> Vec<String> {
        let mut evidence = Vec::new();
        for limits in &self.facts.cgroup.hugetlb {
            if self.size().is_some_and(|size| size != limits.page_size) {
                continue;
            }
            let size = limits.page_size;
            for (what, limit) in [("touch", &limits.touch), ("reserve", &limits.reserve)] {
                match limit {
                    Reading::Known(Some(Limit { bytes, file, .. })) => evidence.push(format!(
                        "a control group of this shell limits {size} pages to {bytes} ({what}) [{}]",
                        absolute(file)
                    )),
                    Reading::Known(None) => {}
                    Reading::Unknown { unknown } => evidence.push(format!(
                        "the control group limit on {size} pages ({what}) is unknown: {unknown}"
                    )),
                }
            }
        }
        if evidence.is_empty() && self.found.message.family == Family::BusError {
            evidence.push(
                "no control group of this shell limits huge pages; that of the killed process may".to_owned(),
            );
        }
        evidence
    }

    /// Number of additional pages available now.
    fn obtainable(&self) -> Option<String> {
        let size = self.size()?;
        let obtainable = self.facts.contiguity.sizes.iter().find(|sizes| sizes.page_size == size)?;
        let count = |pages: &Reading<Pages>| {
            pages.known().map_or_else(|| "an unknown number".to_owned(), ToString::to_string)
        };
        Some(format!(
            "{} more pages of {size} are available now, at most {} after compaction",
            count(&obtainable.at_once),
            count(&obtainable.at_most)
        ))
    }
}

fn absolute(file: &Path) -> String {
    Path::new("/").join(file).display().to_string()
}

fn reported<T: std::fmt::Display>(what: &str, value: &Reading<T>, file: &str) -> String {
    match value {
        Reading::Known(value) => format!("{what} is {value} [/{file}]"),
        Reading::Unknown { unknown } => format!("{what} is unknown: {unknown}"),
    }
}

fn setting(what: &str, decided: Option<(&str, PathBuf)>, of: &Thp, file: &str) -> String {
    match decided {
        Some((word, file)) => format!("{what} is set to {word} now [{}]", absolute(&file)),
        None => {
            let reading = if file == "enabled" { &of.enabled } else { &of.shmem_enabled };
            let reason = reading.reason().unwrap_or("the settings of its page sizes differ");
            format!("{what} is unknown: {reason} [/{}]", thp::path(file).display())
        }
    }
}
