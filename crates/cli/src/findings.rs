//! What stands in the way of huge pages on a machine, drawn from its facts only.

use std::path::{Path, PathBuf};

use hugewise_jvm::jdks::Jdk;
use hugewise_kernel::{
    cgroup::{HugetlbLimits, Limit, Version},
    contiguity::{BUDDYINFO, Obtainable},
    facts::Facts,
    limits::{Capabilities, SHM_GROUP, SHMALL, SHMMAX, STATUS},
    meminfo::MEMINFO,
    pmu,
    pools::{self, NODES, POOLS, Pool},
    reading::Reading,
    thp,
    units::{Bytes, Pages},
};
use serde::Serialize;

/// How bad it is; the worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A program that uses huge pages here fails.
    Problem,
    /// It gets less than it should, or somebody pays for it.
    Warning,
    /// Good to know.
    Info,
}

/// What was read, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The value.
    pub value: String,
    /// The file, as it is called on the machine.
    pub source: PathBuf,
}

/// One thing that stands in the way, or is good to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name, which never changes its meaning.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// From what it was drawn.
    pub evidence: Vec<Evidence>,
    /// What follows from it.
    pub consequence: String,
    /// The command that mends it, where one does.
    pub command: Option<String>,
}

/// All findings, the most severe first.
pub fn findings(facts: &Facts, jdks: &[Jdk]) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(missing(facts));
    found.extend(facts.cgroup.hugetlb.iter().flat_map(|limits| cgroup_hugetlb(facts, limits)));
    found.extend(cgroup_memory(facts));
    found.extend(pool_empty(facts));
    found.extend(facts.machine_pools().filter_map(|pool| pool_idle(facts, pool)));
    found.extend(facts.machine_pools().filter_map(|pool| pool_one_node(facts, pool)));
    found.extend(fragmented(facts));
    found.extend(transparent(facts, jdks));
    found.extend(shared_memory(facts));
    found.extend(counters(facts));
    found.extend(not_root(facts));
    if jdks.is_empty() {
        found.push(Finding {
            id: "no-jdk",
            severity: Severity::Info,
            evidence: vec![evidence("no release file beside a bin/java", "/usr/lib/jvm")],
            consequence: "No JDK was found in the usual folders, JAVA_HOME or PATH: nothing that needs \
                          a java can run here."
                .to_owned(),
            command: None,
        });
    }
    found.sort_by_key(|finding| finding.severity);
    found
}

fn evidence(value: impl ToString, source: impl AsRef<Path>) -> Evidence {
    Evidence { value: value.to_string(), source: Path::new("/").join(source) }
}

/// The command that writes `value` into a file, which may have any name.
fn write(value: impl std::fmt::Display, file: impl AsRef<Path>) -> Option<String> {
    let file = Path::new("/").join(file);
    let name = file.to_str()?;
    let harmless = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    let name = if name.chars().all(harmless) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    };
    Some(format!("echo {value} | sudo tee {name}"))
}

fn missing(facts: &Facts) -> Option<Finding> {
    let reason = facts.pools.reason()?;
    let (id, severity, consequence, command) = if facts.thp.enabled.known().is_some() {
        (
            "no-hugetlb",
            Severity::Info,
            "The kernel offers no hugetlb pools here: only transparent huge pages are possible.",
            None,
        )
    } else {
        (
            "no-sys",
            Severity::Warning,
            "The settings of the kernel cannot be seen, as in a container without /sys: what is said here \
             comes from /proc alone.",
            Some("sudo mount -t sysfs -o ro sysfs /sys".to_owned()),
        )
    };
    Some(Finding {
        id,
        severity,
        evidence: vec![evidence(reason, POOLS)],
        consequence: consequence.to_owned(),
        command,
    })
}

/// Does a limit stop a program before the pool does?
fn cgroup_hugetlb(facts: &Facts, limits: &HugetlbLimits) -> Option<Finding> {
    let pool = facts.machine_pools().find(|pool| pool.page_size == limits.page_size)?;
    let pool_could_give = pool.available() + pool.overcommit.unwrap_or_default().saturating_sub(pool.surplus);
    let room = |limit: &Limit| limit.bytes.saturating_sub(limit.used.known().copied().unwrap_or_default());
    let stops = |limit: &Limit| room(limit) < pool_could_give * pool.page_size;
    let of = |limit: &Reading<Option<Limit>>| limit.known().cloned().flatten();
    let (touch, reserve) = (of(&limits.touch), of(&limits.reserve));
    let (limit, at_mapping) = match (touch, reserve) {
        // A mapping that is refused never comes to be touched.
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
                format!("{pool_could_give} pages of {size} to be had"),
                pools::folder(size, None).join("free_hugepages"),
            ),
        ],
        consequence: format!("The control group allows {} more in {size} pages: {what}.", room(&limit)),
        command: write(if version == Some(Version::V1) { "-1" } else { "max" }, &limit.file),
    })
}

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
            "Programs here get {} of memory. Base pages and transparent huge pages count; pages of the pools \
             {}.",
            limit.bytes,
            if counts_pools { "count too (memory_hugetlb_accounting)" } else { "do not" }
        ),
        command: None,
    })
}

fn pool_empty(facts: &Facts) -> Option<Finding> {
    let pools: Vec<&Pool> = facts.machine_pools().collect();
    let default_size = *facts.meminfo.default_size.known()?;
    let nothing =
        |pool: &&Pool| pool.total == Pages(0) && pool.overcommit.is_none_or(|most| most == Pages(0));
    if pools.is_empty() || !pools.iter().all(nothing) {
        return None;
    }
    let source = if facts.pools.known().is_some() { POOLS } else { MEMINFO };
    let example = Bytes(1 << 30).pages_needed(default_size);
    Some(Finding {
        id: "pool-empty",
        severity: Severity::Info,
        evidence: vec![evidence("no pages in any pool, none on demand", source)],
        consequence: format!(
            "Explicit huge pages cannot be had: with -XX:+UseLargePages ZGC exits, the other collectors run \
             on base pages. The command sets {} aside; take as many pages as your program asks for.",
            example * default_size
        ),
        command: Some(format!("sudo sysctl -w vm.nr_hugepages={example}")),
    })
}

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
    let file = |name| pools::folder(pool.page_size, None).join(name);
    let kept = pool.total.saturating_sub(pool.surplus).saturating_sub(pool.available());
    Some(Finding {
        id: "pool-idle",
        severity: if scarce { Severity::Warning } else { Severity::Info },
        evidence: vec![
            evidence(format!("{} free", pool.free), file("free_hugepages")),
            evidence(format!("{} reserved", pool.reserved.unwrap_or_default()), file("resv_hugepages")),
        ],
        consequence: format!(
            "{idle} ({:.0} % of the memory) lies in the {} pool and nobody asked for it: right before a \
             program starts on it, lost to everyone else otherwise.",
            share * 100.0,
            pool.page_size
        ),
        command: write(kept, file("nr_hugepages")),
    })
}

/// Is a pool on some nodes only?
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
            "Threads that run there get pages of another node, which are slower to reach; a program \
                      bound to that memory gets none."
                .to_owned(),
        command: None,
    })
}

/// Where free memory is there but does not lie side by side.
fn scattered(facts: &Facts) -> Option<(&Obtainable, Pages, Pages)> {
    let pmd_size = facts.thp.pmd_size.known().or(facts.meminfo.default_size.known())?;
    let sizes = &facts.contiguity.sizes;
    let pages = sizes.iter().find(|pages| &pages.page_size == pmd_size && pages.blocks.is_none())?;
    let (at_once, at_most) = (*pages.at_once.known()?, *pages.at_most.known()?);
    // Memory in no list may still come in large blocks.
    let unlisted = facts.contiguity.unlisted.known()?.whole_pages(*pmd_size);
    let few = at_once.0.saturating_add(unlisted.0).saturating_mul(4) < at_most.0;
    (few && at_most.0 >= 16).then_some((pages, at_once, at_most))
}

fn fragmented(facts: &Facts) -> Option<Finding> {
    let (pages, at_once, at_most) = scattered(facts)?;
    Some(Finding {
        id: "memory-fragmented",
        severity: Severity::Warning,
        evidence: vec![
            evidence(format!("{at_once} pages of {} lie ready", pages.page_size), BUDDYINFO),
            evidence(format!("free memory for {at_most}"), MEMINFO),
        ],
        consequence: format!(
            "There is free memory, but little of it side by side: a pool of {} pages may end up smaller than \
             asked for, and transparent huge pages fall back or wait for compaction.",
            pages.page_size
        ),
        command: write(1, "proc/sys/vm/compact_memory"),
    })
}

fn transparent(facts: &Facts, jdks: &[Jdk]) -> Vec<Finding> {
    let mut found = Vec::new();
    let settings = &facts.thp;
    let Some((enabled, file)) = settings.pmd_enabled() else { return found };
    let enabled_evidence = evidence(enabled, &file);
    let of_machine = file == thp::path("enabled");
    if enabled == "never" {
        found.push(Finding {
            id: "thp-off",
            severity: Severity::Warning,
            evidence: vec![enabled_evidence],
            consequence: "Memory that asks for transparent huge pages gets base pages: \
                          -XX:+UseTransparentHugePages has no effect, and JDK 11 does not even say so."
                .to_owned(),
            command: write(if of_machine { "madvise" } else { "inherit" }, &file),
        });
        return found;
    }
    if enabled == "always" {
        found.push(Finding {
            id: "thp-always",
            severity: Severity::Info,
            evidence: vec![enabled_evidence.clone()],
            consequence: "Every program gets huge pages unasked, thread stacks too: the resident memory of \
                          programs with many threads or sparse heaps can grow."
                .to_owned(),
            command: write("madvise", &file),
        });
        found.extend(bloat(facts, &enabled_evidence));
    }
    found.extend(stalls(facts, enabled, &enabled_evidence));
    if let Some((word @ ("never" | "deny"), file)) = settings.pmd_shmem_enabled() {
        if jdks.iter().any(|jdk| jdk.major >= 11) {
            let of_machine = file == thp::path("shmem_enabled");
            found.push(Finding {
                id: "zgc-needs-shmem",
                severity: Severity::Info,
                evidence: vec![evidence(word, &file)],
                consequence:
                    "The heap of ZGC is shared memory: with -XX:+UseTransparentHugePages it stays on \
                              base pages here, whatever its log says. Other collectors are not concerned."
                        .to_owned(),
                command: write(if of_machine { "advise" } else { "inherit" }, &file),
            });
        }
    }
    found
}

/// Does khugepaged fill up every hole?
fn bloat(facts: &Facts, enabled: &Evidence) -> Option<Finding> {
    let none = *facts.thp.khugepaged.max_ptes_none.known()?;
    let in_huge = facts.thp.pmd_size.known()?.bytes().whole_pages(*facts.base_page.known()?);
    if none.saturating_add(1) < in_huge.0 {
        return None;
    }
    let file = thp::path("khugepaged/max_ptes_none");
    Some(Finding {
        id: "khugepaged-bloat",
        severity: Severity::Warning,
        evidence: vec![enabled.clone(), evidence(none, &file)],
        consequence: format!(
            "khugepaged makes a huge page as soon as 1 of its {in_huge} base pages is in use: memory that a \
             program gave back, or never used, becomes resident again."
        ),
        command: write(0, &file),
    })
}

/// Do programs wait for huge pages to be made?
fn stalls(facts: &Facts, enabled: &str, enabled_evidence: &Evidence) -> Option<Finding> {
    let file = thp::path("defrag");
    let defrag = facts.thp.defrag.known()?.as_str();
    let mut seen = vec![enabled_evidence.clone(), evidence(defrag, &file)];
    let (consequence, better) = match defrag {
        "always" if enabled == "always" => (
            "Every program may wait in a page fault while the kernel compacts or reclaims memory for a huge \
             page that it never asked for.",
            "madvise",
        ),
        "always" | "madvise" | "defer+madvise" => {
            let (pages, at_once, _) = scattered(facts)?;
            seen.push(evidence(format!("{at_once} pages of {} lie ready", pages.page_size), BUDDYINFO));
            (
                "Memory is fragmented, and programs that ask for transparent huge pages wait in the page \
                 fault until the kernel has compacted or reclaimed enough. With `defer` they go on with base \
                 pages, and khugepaged replaces those later.",
                "defer",
            )
        }
        _ => return None,
    };
    Some(Finding {
        id: "thp-defrag-stalls",
        severity: Severity::Warning,
        evidence: seen,
        consequence: consequence.to_owned(),
        command: write(better, &file),
    })
}

fn shared_memory(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(shm_group(facts));
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

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
