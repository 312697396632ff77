//! Findings about hugetlb pools: pages in use and available, and limits below them.

use std::path::{Path, PathBuf};

use hugewise_linux::{
    cgroup::{HugetlbLimits, Limit, Version},
    facts::Facts,
    hugepages::{
        contiguity::{BUDDYINFO, Obtainable},
        pools::{NODES, POOLS, Pool, folder},
    },
    proc::meminfo::MEMINFO,
    reading::Reading,
    units::{Bytes, Pages},
};

use crate::availability::{self, LimitsThatCount, Policy};

use super::{Finding, Severity, evidence, write};

pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(facts.cgroup.hugetlb.iter().filter_map(|limits| cgroup_hugetlb(facts, limits)));
    found.extend(cgroup_memory(facts));
    found.extend(pool_empty(facts));
    found.extend(facts.machine_pools().filter_map(|pool| pool_idle(facts, pool)));
    found.extend(facts.machine_pools().filter_map(|pool| pool_one_node(facts, pool)));
    found.extend(fragmented(facts));
    found
}

/// Source of a pool's counter: its own file, or /proc/meminfo if /sys is missing.
fn file_of(facts: &Facts, pool: &Pool, name: &str) -> PathBuf {
    match facts.pools.known() {
        Some(_) => folder(pool.page_size, None).join(name),
        None => PathBuf::from(MEMINFO),
    }
}

/// Whether a control group's limit is reached before the pool is empty.
fn cgroup_hugetlb(facts: &Facts, limits: &HugetlbLimits) -> Option<Finding> {
    let pool = facts.machine_pools().find(|pool| pool.page_size == limits.page_size)?;
    let policy = Policy { surplus: true, limits: LimitsThatCount::None };
    let pool_could_give = availability::available(pool, &[], policy).pages;
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
        consequence: format!("The control group allows {} more in {size} pages: {what}.", room(&limit)),
        command: write(if version == Some(Version::V1) { "-1" } else { "max" }, &limit.file),
    })
}

/// Whether the control group's memory limit is below the memory of the machine.
fn cgroup_memory(facts: &Facts) -> Option<Finding> {
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
        consequence: format!(
            "The control group limits memory to {}. Base pages and transparent huge pages are charged to it; \
             hugetlb pages are {}.",
            limit.bytes,
            if counts_pools { "charged as well (memory_hugetlb_accounting)" } else { "not" }
        ),
        command: None,
    })
}

/// Whether all pools are empty and may not grow on demand.
fn pool_empty(facts: &Facts) -> Option<Finding> {
    let pools: Vec<&Pool> = facts.machine_pools().collect();
    let default_size = *facts.meminfo.default_size.known()?;
    let nothing =
        |pool: &&Pool| pool.total == Pages(0) && pool.overcommit.is_none_or(|most| most == Pages(0));
    if pools.is_empty() || !pools.iter().all(nothing) {
        return None;
    }
    let seen = match facts.pools.known() {
        Some(_) => evidence("no pages in any pool, none on demand", POOLS),
        None => evidence("no pages in the default pool", MEMINFO),
    };
    let example = Bytes(1 << 30).pages_needed(default_size);
    Some(Finding {
        id: "pool-empty",
        severity: Severity::Info,
        evidence: vec![seen],
        consequence: format!(
            "No explicit huge pages are available: with -XX:+UseLargePages ZGC exits, and the other \
             collectors run on base pages. The command reserves {}; choose the number of pages that your \
             program requests.",
            example * default_size
        ),
        command: Some(format!("sudo sysctl -w vm.nr_hugepages={example}")),
    })
}

/// Whether pages of a pool are neither in use nor reserved.
fn pool_idle(facts: &Facts, pool: &Pool) -> Option<Finding> {
    let total = *facts.meminfo.total.known()?;
    let idle = pool.available() * pool.page_size;
    let share = idle.share_of(total)?;
    if pool.available() == Pages(0) {
        return None;
    }
    let scarce = facts
        .meminfo
        .available
        .known()
        .and_then(|available| available.share_of(total))
        .is_some_and(|share| share < 0.1);
    let kept = pool.total.saturating_sub(pool.surplus).saturating_sub(pool.available());
    Some(Finding {
        id: "pool-idle",
        severity: if scarce { Severity::Warning } else { Severity::Info },
        evidence: vec![
            evidence(format!("{} free", pool.free), file_of(facts, pool, "free_hugepages")),
            evidence(
                format!("{} reserved", pool.reserved.unwrap_or_default()),
                file_of(facts, pool, "resv_hugepages"),
            ),
        ],
        consequence: format!(
            "{idle} ({:.0} % of the memory) of the {} pool is unused. Before a program starts on it that is \
             intended; otherwise no other program can use this memory.",
            share * 100.0,
            pool.page_size
        ),
        command: match facts.pools.known() {
            Some(_) => write(kept, folder(pool.page_size, None).join("nr_hugepages")),
            None => Some(format!("sudo sysctl -w vm.nr_hugepages={kept}")),
        },
    })
}

/// Whether only some NUMA nodes have pages of a pool.
fn pool_one_node(facts: &Facts, pool: &Pool) -> Option<Finding> {
    let of_size = |other: &&Pool| other.page_size == pool.page_size && other.node.is_some();
    let nodes: Vec<&Pool> = facts.pools.known()?.iter().filter(of_size).collect();
    let without: Vec<String> = nodes
        .iter()
        .filter(|node| node.total == Pages(0))
        .filter_map(|node| Some(node.node?.to_string()))
        .collect();
    if without.is_empty() || without.len() == nodes.len() {
        return None;
    }
    Some(Finding {
        id: "pool-not-on-every-node",
        severity: Severity::Info,
        evidence: vec![evidence(
            format!("no {} pages on node {}", pool.page_size, without.join(", ")),
            Path::new(NODES),
        )],
        consequence:
            "Threads on these nodes get pages of another node, with a higher latency; a program bound \
                      to the memory of these nodes gets none."
                .to_owned(),
        command: None,
    })
}

/// Huge pages free now and after compaction, if free memory is fragmented; `None` if it is not, or if that is
/// unknown.
pub fn scattered(facts: &Facts) -> Option<(&Obtainable, Pages, Pages)> {
    let pmd_size = facts.thp.pmd_size.known().or(facts.meminfo.default_size.known())?;
    let sizes = &facts.contiguity.sizes;
    let pages = sizes.iter().find(|pages| &pages.page_size == pmd_size && pages.blocks.is_none())?;
    let (at_once, at_most) = (*pages.at_once.known()?, *pages.at_most.known()?);
    // Memory in no free list may contain large blocks.
    let unlisted = facts.contiguity.unlisted.known()?.whole_pages(*pmd_size);
    let few = at_once.0.saturating_add(unlisted.0).saturating_mul(4) < at_most.0;
    (few && at_most.0 >= 16).then_some((pages, at_once, at_most))
}

/// Whether much memory is free, and little of it in blocks of a huge page.
fn fragmented(facts: &Facts) -> Option<Finding> {
    let (pages, at_once, at_most) = scattered(facts)?;
    Some(Finding {
        id: "memory-fragmented",
        severity: Severity::Warning,
        evidence: vec![
            evidence(format!("{at_once} pages of {} free", pages.page_size), BUDDYINFO),
            evidence(format!("free memory for {at_most}"), MEMINFO),
        ],
        consequence: format!(
            "Free memory is fragmented: a pool of {} pages can end up smaller than requested, and \
             allocations of transparent huge pages fall back to base pages or wait for compaction.",
            pages.page_size
        ),
        command: write(1, "proc/sys/vm/compact_memory"),
    })
}
