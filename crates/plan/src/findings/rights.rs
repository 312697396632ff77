//! Findings about the caller's privileges, and readings that need more of them.

use hugewise_linux::{
    cpu::pmu,
    facts::Facts,
    hugepages::{
        contiguity::Obtainable,
        pools::{POOLS, Pool},
    },
    proc::limits::{Capabilities, SHM_GROUP, SHMALL, SHMMAX, STATUS},
    reading::Reading,
};

use super::{Finding, Severity, evidence};

pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = shared_memory(facts);
    found.extend(shm_group(facts));
    found.extend(counters(facts));
    found.extend(not_root(facts));
    found
}

/// Whether the limits on SysV segments are below the size of the pools.
fn shared_memory(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let largest = facts.machine_pools().map(Pool::bytes).max().unwrap_or_default();
    let base = facts.base_page.known();
    let shmall = facts.limits.shmall.known().zip(base).map(|(&pages, &base)| pages * base);
    for (limit, file, name) in
        [(facts.limits.shmmax.known().copied(), SHMMAX, "kernel.shmmax"), (shmall, SHMALL, "kernel.shmall")]
    {
        let Some(limit) = limit.filter(|&limit| limit < largest) else { continue };
        // For limits in bytes and in pages: the kernel's default, which means "no limit".
        let mend = format!("sudo sysctl -w {name}=18446744073692774399");
        found.push(Finding {
            id: "shmmax-small",
            severity: Severity::Warning,
            evidence: vec![evidence(limit, file), evidence(format!("a pool of {largest}"), POOLS)],
            consequence: format!(
                "SysV shared memory (backing shm) is limited to {limit}, less than the size of the pool: a \
                 larger segment is refused."
            ),
            command: Some(mend),
        });
    }
    found
}

/// Whether the caller may not create SysV segments on huge pages.
fn shm_group(facts: &Facts) -> Option<Finding> {
    let limits = &facts.limits;
    let (capabilities, groups) = (limits.capabilities.known()?, limits.groups.known()?);
    let group = limits.hugetlb_shm_group.known()?;
    if capabilities.has(Capabilities::IPC_LOCK) || groups.contains(group) {
        return None;
    }
    Some(Finding {
        id: "shm-group",
        severity: Severity::Info,
        evidence: vec![
            evidence(group, SHM_GROUP),
            evidence(format!("groups {groups:?}, no CAP_IPC_LOCK"), STATUS),
        ],
        consequence: "SysV segments on huge pages (backing shm, -XX:+UseSHM up to JDK 21) are refused with \
                      EPERM; before Linux 5.16 the memlock limit decides. Huge pages by mmap (backing \
                      hugetlb) need no privilege."
            .to_owned(),
        command: limits.gid.known().map(|gid| format!("sudo sysctl -w vm.hugetlb_shm_group={gid}")),
    })
}

/// Whether TLB misses can be counted, and by the caller.
fn counters(facts: &Facts) -> Option<Finding> {
    if facts.pmu.has_cores()? {
        let paranoid = *facts.pmu.paranoid.known()?;
        let capabilities = facts.limits.capabilities.known()?;
        let may = capabilities.has(Capabilities::PERFMON) || capabilities.has(Capabilities::SYS_ADMIN);
        return (paranoid > 2 && !may).then(|| Finding {
            id: "tlb-counters-forbidden",
            severity: Severity::Info,
            evidence: vec![evidence(paranoid, pmu::PARANOID)],
            consequence: "Kernels with a level above 2 (those of Debian and Ubuntu) require CAP_PERFMON to \
                          count TLB misses."
                .to_owned(),
            command: Some("sudo sysctl -w kernel.perf_event_paranoid=2".to_owned()),
        });
    }
    Some(Finding {
        id: "no-tlb-counters",
        severity: Severity::Info,
        evidence: vec![evidence("no PMU of the cores", pmu::DEVICES)],
        consequence: "TLB misses cannot be counted, as on most virtual machines: only times show the effect \
                      of huge pages."
            .to_owned(),
        command: None,
    })
}

/// Readings that are missing because a privilege is.
fn not_root(facts: &Facts) -> Option<Finding> {
    if facts.limits.capabilities.known()?.has(Capabilities::SYS_ADMIN) {
        return None;
    }
    let could_not = |pages: &&Obtainable| {
        pages.blocks.as_ref().and_then(Reading::reason).is_some_and(|reason| reason.contains("CAP_SYS_ADMIN"))
    };
    let left_out = facts.contiguity.sizes.iter().find(could_not)?;
    Some(Finding {
        id: "not-root",
        severity: Severity::Info,
        evidence: vec![evidence("no CAP_SYS_ADMIN", STATUS)],
        consequence: format!(
            "The number of available {} pages is unknown: /proc/kpageflags needs CAP_SYS_ADMIN.",
            left_out.page_size
        ),
        command: Some("sudo hugewise check".to_owned()),
    })
}
