//! Findings about the caller's privileges, and readings that need more of them.

use hugewise_linux::{
    action::Action,
    facts::Facts,
    hugepages::{
        contiguity::AvailablePages,
        pools::{POOLS, Pool},
    },
    proc::limits::{Capabilities, SHM_GROUP, SHMALL, SHMMAX, STATUS},
    reading::Reading,
};

use super::{Finding, Severity, evidence};

pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = shared_memory(facts);
    found.extend(shm_group(facts));
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
        let command = format!("sudo sysctl -w {name}=18446744073692774399");
        found.push(Finding {
            id: "shmmax-small",
            severity: Severity::Warning,
            evidence: vec![evidence(limit, file), evidence(format!("a pool of {largest}"), POOLS)],
            detail: format!(
                "SysV shared memory (backing shm) is limited to {limit}, less than the size of the pool: a \
                 larger segment is refused."
            ),
            actions: vec![Action::new("Remove the limit").by(command)],
        });
    }
    found
}

/// Whether the caller may not create SysV segments on huge pages.
fn shm_group(facts: &Facts) -> Option<Finding> {
    let limits = &facts.limits;
    let (groups, group) = (limits.groups.known()?, limits.hugetlb_shm_group.known()?);
    if limits.may_use_huge_segments()? {
        return None;
    }
    let permit = |gid: &u32| {
        Action::new(format!("Permit SysV segments on huge pages to group {gid}"))
            .by(format!("sudo sysctl -w vm.hugetlb_shm_group={gid}"))
    };
    Some(Finding {
        id: "shm-group",
        severity: Severity::Info,
        evidence: vec![
            evidence(group, SHM_GROUP),
            evidence(format!("groups {groups:?}, no CAP_IPC_LOCK"), STATUS),
        ],
        detail: "SysV segments on huge pages (backing shm, -XX:+UseSHM up to JDK 21) are refused with \
                      EPERM; before Linux 5.16 the memlock limit decides. Huge pages by mmap (backing \
                      hugetlb) need no privilege."
            .to_owned(),
        actions: limits.gid.known().map(permit).into_iter().collect(),
    })
}

/// Readings that are missing because a privilege is.
fn not_root(facts: &Facts) -> Option<Finding> {
    if facts.limits.capabilities.known()?.has(Capabilities::SYS_ADMIN) {
        return None;
    }
    let lacks_right = |pages: &&AvailablePages| {
        pages.blocks.as_ref().and_then(Reading::reason).is_some_and(|reason| reason.contains("CAP_SYS_ADMIN"))
    };
    let left_out = facts.contiguity.sizes.iter().find(lacks_right)?;
    Some(Finding {
        id: "not-root",
        severity: Severity::Info,
        evidence: vec![evidence("no CAP_SYS_ADMIN", STATUS)],
        detail: format!(
            "The number of available {} pages is unknown: /proc/kpageflags needs CAP_SYS_ADMIN.",
            left_out.page_size
        ),
        actions: vec![Action::new("Run the command as root").by("sudo hugewise check")],
    })
}
