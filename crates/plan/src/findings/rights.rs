//! What the caller may do, and what can be seen.

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

/// All of them.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = shared_memory(facts);
    found.extend(shm_group(facts));
    found.extend(counters(facts));
    found.extend(not_root(facts));
    found
}

/// Do the limits on SysV segments let a program have what the pools hold?
fn shared_memory(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let largest = facts.machine_pools().map(Pool::bytes).max().unwrap_or_default();
    let base = facts.base_page.known();
    let shmall = facts.limits.shmall.known().zip(base).map(|(&pages, &base)| pages * base);
    for (limit, file, name) in
        [(facts.limits.shmmax.known().copied(), SHMMAX, "kernel.shmmax"), (shmall, SHMALL, "kernel.shmall")]
    {
        let Some(limit) = limit.filter(|&limit| limit < largest) else { continue };
        // In bytes or pages: the kernel's own default stands for "no limit" in both.
        let mend = format!("sudo sysctl -w {name}=18446744073692774399");
        found.push(Finding {
            id: "shmmax-small",
            severity: Severity::Warning,
            evidence: vec![evidence(limit, file), evidence(format!("a pool of {largest}"), POOLS)],
            consequence: format!(
                "SysV shared memory (backing shm) is bounded by {limit}, less than the pool holds: a larger \
                 segment is refused."
            ),
            command: Some(mend),
        });
    }
    found
}

/// May the caller have SysV segments on huge pages?
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
                      EPERM; before Linux 5.16 the memlock limit decided. Huge pages by mmap (backing \
                      hugetlb) need no right at all."
            .to_owned(),
        command: limits.gid.known().map(|gid| format!("sudo sysctl -w vm.hugetlb_shm_group={gid}")),
    })
}

/// Can TLB misses be counted, and by the caller?
fn counters(facts: &Facts) -> Option<Finding> {
    if facts.pmu.has_cores()? {
        let paranoid = *facts.pmu.paranoid.known()?;
        let capabilities = facts.limits.capabilities.known()?;
        let may = capabilities.has(Capabilities::PERFMON) || capabilities.has(Capabilities::SYS_ADMIN);
        return (paranoid > 2 && !may).then(|| Finding {
            id: "tlb-counters-forbidden",
            severity: Severity::Info,
            evidence: vec![evidence(paranoid, pmu::PARANOID)],
            consequence: "Kernels that know a level above 2 (those of Debian and Ubuntu) let nobody count \
                          TLB misses without CAP_PERFMON."
                .to_owned(),
            command: Some("sudo sysctl -w kernel.perf_event_paranoid=2".to_owned()),
        });
    }
    Some(Finding {
        id: "no-tlb-counters",
        severity: Severity::Info,
        evidence: vec![evidence("nothing that counts on the cores", pmu::DEVICES)],
        consequence: "TLB misses cannot be counted here, as on most virtual machines: what huge pages bring \
                      shows in time only."
            .to_owned(),
        command: None,
    })
}

/// What was left out for want of a right.
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
            "How many {} pages could be had cannot be told: /proc/kpageflags takes CAP_SYS_ADMIN.",
            left_out.page_size
        ),
        command: Some("sudo hugewise check".to_owned()),
    })
}
