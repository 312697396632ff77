//! Findings about memory that pools and page tables take from programs.

use hugewise_linux::{
    facts::Facts,
    proc::{
        limits::SHMMAX,
        meminfo::MEMINFO,
        overcommit::{OVERCOMMIT_MEMORY, STRICT},
    },
    units::Bytes,
};

use super::{Action, Finding, Severity, evidence};

/// Smallest share of the memory, 0 to 1, at which page tables are reported.
const MIN_PAGE_TABLES_SHARE: f64 = 0.03;
/// Share of the commit limit, 0 to 1, above which programs will soon be refused memory.
const NEAR_LIMIT_SHARE: f64 = 0.9;
/// No kernel has a smaller default for the largest SysV segment.
const MIN_SHMMAX: Bytes = Bytes(32 << 20);

pub fn findings(facts: &Facts) -> Vec<Finding> {
    [page_tables(facts), commit_limit(facts), shmmax(facts)].into_iter().flatten().collect()
}

/// Whether page tables take much memory.
fn page_tables(facts: &Facts) -> Option<Finding> {
    let (total, tables) = (*facts.meminfo.total.known()?, *facts.meminfo.page_tables.known()?);
    let share = tables.share_of(total).filter(|share| *share >= MIN_PAGE_TABLES_SHARE)?;
    // An entry of eight bytes for each base page, in every process that maps it.
    let mapped = facts.base_page.known().map_or_else(String::new, |base| {
        format!(", which map up to {} on pages of {base}", Bytes(tables.0.saturating_mul(base.bytes().0 / 8)))
    });
    Some(Finding {
        id: "page-tables",
        severity: Severity::Warning,
        evidence: vec![evidence(format!("PageTables {tables}"), MEMINFO)],
        detail: format!(
            "Page tables take {tables} ({:.0} % of the memory){mapped}. Most likely \
             many processes map the same shared memory, as those of a database server do; on huge pages its tables are \
             smaller by the ratio of the page sizes.",
            share * 100.0
        ),
        actions: vec![
            Action::new(
                "Start the server with its shared memory on pages of a pool; find the processes first",
            )
            .by("grep -H VmPTE /proc/[0-9]*/status | sort -k2 -n | tail"),
        ],
    })
}

/// Whether the kernel refuses memory beyond the commit limit.
fn commit_limit(facts: &Facts) -> Option<Finding> {
    let meminfo = &facts.meminfo;
    if !facts.overcommit.is_strict() {
        return None;
    }
    let (limit, committed) = (*meminfo.commit_limit.known()?, *meminfo.committed.known()?);
    let near = committed.share_of(limit).is_some_and(|share| share >= NEAR_LIMIT_SHARE);
    let pools: Bytes = facts.machine_pools().map(|pool| pool.total * pool.page_size).sum();
    let available = meminfo
        .available
        .known()
        .map_or_else(String::new, |available| format!(", although {available} are available"));
    Some(Finding {
        id: "commit-limit",
        severity: if near { Severity::Warning } else { Severity::Info },
        evidence: vec![
            evidence(STRICT, OVERCOMMIT_MEMORY),
            evidence(format!("CommitLimit {limit}, Committed_AS {committed}"), MEMINFO),
        ],
        detail: format!(
            "vm.overcommit_memory is 2: programs have committed {committed}, and beyond {limit} the kernel refuses them \
             memory (ENOMEM){}. Pools lower this limit: it is (memory - pools of {pools}) × overcommit_ratio + swap.",
            if near { available } else { String::new() }
        ),
        actions: vec![Action::new(
            "Raise vm.overcommit_ratio by the share that the pools take, return pages of the pools that no program uses, or \
             let programs reserve less memory",
        )],
    })
}

/// Whether the largest SysV segment is smaller than any program needs.
fn shmmax(facts: &Facts) -> Option<Finding> {
    let limit = facts.limits.shmmax.known().filter(|limit| **limit < MIN_SHMMAX)?;
    Some(Finding {
        id: "shmmax-wrong",
        severity: Severity::Warning,
        evidence: vec![evidence(limit.0, SHMMAX)],
        detail: format!(
            "kernel.shmmax is {} bytes ({limit}), less than the default of any kernel: most likely a value in another unit \
             was written. Larger SysV segments are refused.",
            limit.0
        ),
        actions: vec![
            Action::new("Remove the limit").by("sudo sysctl -w kernel.shmmax=18446744073692774399"),
        ],
    })
}
