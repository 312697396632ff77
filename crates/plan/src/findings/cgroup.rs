//! Findings about the limits of the control group.

use hugewise_linux::{
    cgroup::{HugetlbLimits, Limit, Version},
    facts::Facts,
    proc::meminfo::MEMINFO,
    reading::Reading,
    units::{Bytes, PageSize},
};

use super::{Finding, Severity, evidence, file_of, write};
use crate::pool_availability::{self, Policy};

pub fn findings(facts: &Facts) -> Vec<Finding> {
    let pages = facts.cgroup.hugetlb.iter().filter_map(|limits| hugetlb_limit(facts, limits));
    pages.chain(memory_limit(facts)).collect()
}

/// Whether a control group's limit is reached before the pool is empty.
fn hugetlb_limit(facts: &Facts, limits: &HugetlbLimits) -> Option<Finding> {
    let pool = facts.machine_pools().find(|pool| pool.page_size == limits.page_size)?;
    let pool_could_give = pool_availability::available(pool, &[], Policy::AtMapping).pages;
    let size = pool.page_size;
    let most = pool_could_give * size;
    let of = |limit: &Reading<Option<Limit>>| limit.known().cloned().flatten();
    let known = [(of(&limits.reserve), true), (of(&limits.touch), false)];
    let known: Vec<(Limit, bool)> = known.into_iter().filter_map(|(limit, at)| Some((limit?, at))).collect();
    // A refused mapping is never touched: of equal limits, that on reservations counts.
    let stops = known.iter().filter_map(|(limit, at)| Some((*limit.left.known()?, limit, *at)));
    let Some((left, limit, at_mapping)) =
        stops.filter(|(left, ..)| *left < most).min_by_key(|(left, ..)| *left)
    else {
        return known.iter().find_map(|(limit, _)| unknown_limit(limit, size, most));
    };
    let (severity, what) = match (at_mapping, left) {
        (true, _) => (Severity::Warning, "mapping more fails with ENOMEM, although the pool has pages"),
        (false, Bytes::ZERO) => {
            (Severity::Problem, "mapping succeeds, and the first touch kills the program with SIGBUS")
        }
        (false, _) => {
            (Severity::Warning, "mapping more succeeds, and touching it kills the program with SIGBUS")
        }
    };
    let version = facts.cgroup.hugetlb_group.known().map(|group| group.version);
    Some(Finding {
        id: "cgroup-hugetlb-limit",
        severity,
        evidence: vec![
            evidence(format!("{left} left of {}", limit.bytes), &limit.file),
            evidence(
                format!("{pool_could_give} pages of {size} available"),
                file_of(facts, pool, "free_hugepages"),
            ),
        ],
        detail: format!("The control group allows {left} more in {size} pages: {what}."),
        actions: write(
            "Remove the limit",
            if version == Some(Version::V1) { "-1" } else { "max" },
            &limit.file,
        ),
    })
}

/// Whether it is unknown how much a limit leaves, so that it may be reached before the pool is empty.
fn unknown_limit(limit: &Limit, size: PageSize, most: Bytes) -> Option<Finding> {
    let reason = limit.left.reason().filter(|_| most > Bytes::ZERO)?;
    Some(Finding {
        id: "cgroup-hugetlb-limit",
        severity: Severity::Info,
        evidence: vec![evidence(format!("{}; usage unknown: {reason}", limit.bytes), &limit.file)],
        detail: format!(
            "The control group limits {size} pages to {}; how much of that is left is unknown.",
            limit.bytes
        ),
        actions: Vec::new(),
    })
}

/// Whether the control group's memory limit is below the memory of the machine.
fn memory_limit(facts: &Facts) -> Option<Finding> {
    let limit = facts.cgroup.memory.known()?.as_ref()?;
    let total = *facts.meminfo.total.known()?;
    if limit.bytes >= total {
        return None;
    }
    let nearly_full =
        limit.left.known().and_then(|left| left.share_of(limit.bytes)).is_some_and(|share| share < 0.1);
    let counts_pools = facts.cgroup.memory_counts_hugetlb.known() == Some(&true);
    Some(Finding {
        id: "cgroup-memory-limit",
        severity: if nearly_full { Severity::Warning } else { Severity::Info },
        evidence: vec![
            evidence(
                match &limit.left {
                    Reading::Known(left) => format!("{left} left of {}", limit.bytes),
                    Reading::Unknown { unknown } => format!("{}; usage unknown: {unknown}", limit.bytes),
                },
                &limit.file,
            ),
            evidence(format!("MemTotal {total}"), MEMINFO),
        ],
        detail: format!(
            "The control group limits memory to {}. Base pages and transparent huge pages are charged to it; \
             hugetlb pages are {}.",
            limit.bytes,
            if counts_pools { "charged as well (memory_hugetlb_accounting)" } else { "not" }
        ),
        actions: Vec::new(),
    })
}
