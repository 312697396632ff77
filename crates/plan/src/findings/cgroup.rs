//! Findings about the limits of the control group.

use hugewise_linux::{
    cgroup::{HugetlbLimits, Limit, Version},
    facts::Facts,
    proc::meminfo::MEMINFO,
    reading::Reading,
    units::Bytes,
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
    let room = |limit: &Limit| limit.bytes.saturating_sub(limit.used.known().copied().unwrap_or_default());
    let stops = |limit: &Limit| room(limit) < pool_could_give * pool.page_size;
    let of = |limit: &Reading<Option<Limit>>| limit.known().cloned().flatten();
    let (touch, reserve) = (of(&limits.touch), of(&limits.reserve));
    let (limit, at_mapping) = match (touch, reserve) {
        // A refused mapping is never touched.
        (touch, Some(reserve)) if touch.as_ref().is_none_or(|touch| room(&reserve) <= room(touch)) => {
            (reserve, true)
        }
        (touch, _) => (touch?, false),
    };
    if !stops(&limit) {
        return None;
    }
    let size = pool.page_size;
    let (severity, what) = match (at_mapping, room(&limit)) {
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
            evidence(format!("{} left of {}", room(&limit), limit.bytes), &limit.file),
            evidence(
                format!("{pool_could_give} pages of {size} available"),
                file_of(facts, pool, "free_hugepages"),
            ),
        ],
        detail: format!("The control group allows {} more in {size} pages: {what}.", room(&limit)),
        actions: write(
            "Remove the limit",
            if version == Some(Version::V1) { "-1" } else { "max" },
            &limit.file,
        ),
    })
}

/// Whether the control group's memory limit is below the memory of the machine.
fn memory_limit(facts: &Facts) -> Option<Finding> {
    let limit = facts.cgroup.memory.known()?.as_ref()?;
    let total = *facts.meminfo.total.known()?;
    if limit.bytes >= total {
        return None;
    }
    let used = limit.used.known().copied();
    let nearly_full = used.and_then(|used| used.share_of(limit.bytes)).is_some_and(|share| share > 0.9);
    let counts_pools = facts.cgroup.memory_counts_hugetlb.known() == Some(&true);
    Some(Finding {
        id: "cgroup-memory-limit",
        severity: if nearly_full { Severity::Warning } else { Severity::Info },
        evidence: vec![
            evidence(
                match used {
                    Some(used) => format!("{} ({used} used)", limit.bytes),
                    None => limit.bytes.to_string(),
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
