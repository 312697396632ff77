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
    Family, Origin,
    explainer::{ENOMEM, Explainer},
};

impl Explainer<'_> {
    /// Readings that concern the message; may be empty.
    pub(super) fn evidence(&self) -> Vec<String> {
        let mut evidence = self.in_text();
        // The text has the state of its own time.
        let has_state = match self.found.message.family {
            Family::ThpOff | Family::ProgramThp => self.captured.thp.is_some(),
            Family::ShmemThpOff => self.captured.shmem_thp.is_some(),
            Family::OutOfMemory => self.origin != Origin::Same,
            _ => self.captured.pool().is_some(),
        };
        let of_machine = if has_state { Vec::new() } else { self.of_machine() };
        let label = self.origin.label();
        let reason = self.origin.reason().filter(|_| !of_machine.is_empty());
        evidence.extend(of_machine.into_iter().map(|reading| format!("{label}{reading}")));
        evidence.extend(reason);
        evidence
    }

    /// Facts of the text that concern the message, marked as such; empty if it has none.
    fn in_text(&self) -> Vec<String> {
        let facts = self.captured;
        let mut said = Vec::new();
        let family = self.found.message.family;
        let pool = !matches!(
            family,
            Family::ThpOff | Family::ShmemThpOff | Family::ProgramThp | Family::Information | Family::Unknown
        );
        if pool {
            said.extend(facts.pool().map(|pool| format!("the pool has {pool}")));
            let decides = matches!(
                family,
                Family::BusError | Family::CommitMemory | Family::HeapCommit | Family::HeapLowered
            );
            said.extend(facts.requested_pool().filter(|_| decides).map(|requested| {
                match (requested, facts.has_flag("UseLargePages")) {
                    (true, Some(true)) => "the JVM was started with -XX:+UseLargePages",
                    (true, _) => "the JVM requested large pages",
                    (false, _) => "the JVM requested no pages of a pool",
                }
                .to_owned()
            }));
            said.extend(facts.hugetlb_limit.map(|limit| match limit {
                Some(bytes) => format!("the control group limits the pages of a pool to {bytes}"),
                None => "the control group has no limit on the pages of a pool".to_owned(),
            }));
            if let (Some(available), Some(memory)) = (facts.available, facts.memory) {
                said.push(format!("{available} of {memory} are available"));
            }
            said.extend(
                facts
                    .overcommit
                    .filter(|_| family == Family::CommitMemory)
                    .map(|mode| format!("vm.overcommit_memory is {mode}")),
            );
            said.extend(
                facts
                    .huge_pages
                    .as_ref()
                    .filter(|_| family == Family::SharedBuffers)
                    .map(|word| format!("huge_pages is {word}")),
            );
            said.extend(
                facts
                    .allocatable
                    .filter(|_| family == Family::NoNode)
                    .map(|bytes| format!("the node has {bytes} for pods")),
            );
        }
        if matches!(
            family,
            Family::ThpOff | Family::ProgramThp | Family::LargePagesOff | Family::LargePagesOn
        ) {
            said.extend(facts.thp.as_ref().map(|mode| format!("THP is set to {mode}")));
        }
        if matches!(family, Family::ShmemThpOff | Family::LargePagesOff | Family::LargePagesOn) {
            said.extend(
                facts.shmem_thp.as_ref().map(|mode| format!("THP of shared memory is set to {mode}")),
            );
        }
        said.into_iter().map(|fact| format!("in the file, {fact}")).collect()
    }

    /// Readings of the machine that concern the message.
    fn of_machine(&self) -> Vec<String> {
        let facts = self.facts;
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
            | Family::SharedBuffers
            | Family::NoNode => self.pool_evidence(),
            Family::BusError | Family::ContainerLimit if self.origin == Origin::Same => self.limit_evidence(),
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
            Family::RegionPages if self.fell_back() => self.pool_evidence(),
            _ => Vec::new(),
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
        if self.origin == Origin::Same {
            evidence.extend(self.limit_evidence());
            evidence.extend(self.obtainable());
        }
        evidence
    }

    /// Limits of control groups on hugetlb pages: of the caller, or of the process of a capture.
    fn limit_evidence(&self) -> Vec<String> {
        let mut evidence = Vec::new();
        let whose = if self.is_live { "this shell" } else { "the captured process" };
        for limits in &self.facts.cgroup.hugetlb {
            if self.size().is_some_and(|size| size != limits.page_size) {
                continue;
            }
            let size = limits.page_size;
            for (what, limit) in [("touch", &limits.touch), ("reserve", &limits.reserve)] {
                match limit {
                    Reading::Known(Some(Limit { bytes, file, .. })) => evidence.push(format!(
                        "a control group of {whose} limits {size} pages to {bytes} ({what}) [{}]",
                        absolute(file)
                    )),
                    Reading::Known(None) => {}
                    Reading::Unknown { unknown } => evidence.push(format!(
                        "the control group limit on {size} pages ({what}) is unknown: {unknown}"
                    )),
                }
            }
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
