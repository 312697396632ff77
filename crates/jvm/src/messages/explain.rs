//! What a message means on this machine: cause, evidence, and what mends it.

use hugewise_linux::{
    facts::Facts,
    hugepages::{pools::Pool, thp},
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Family, Found};

/// A message, explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The message, and where it stands.
    #[serde(flatten)]
    pub found: Found,
    /// What made the JVM or the kernel say it.
    pub cause: String,
    /// What this machine says about it now, each with its source.
    pub evidence: Vec<String>,
    /// What to do: a flag of the JVM or the kernel, or what is to be known of the command.
    pub fix: String,
    /// The command that mends it, where one does; N and GID stand for numbers only the reader knows.
    pub command: Option<String>,
}

const EPERM: i32 = 1;
pub(super) const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

/// Explains what was found in one log, with what is known of this machine now. The log may be
/// older than that, or another machine's: evidence is told as it is, and not bent to the message.
#[must_use]
pub fn explain(found: &[Found], facts: &Facts) -> Vec<Explanation> {
    found.iter().map(|one| Explainer { found: one, all: found, facts }.explain()).collect()
}

/// What to do, and the command for it.
struct Fix {
    fix: String,
    command: Option<String>,
}

impl From<&str> for Fix {
    fn from(fix: &str) -> Fix {
        fix.to_owned().into()
    }
}

impl From<String> for Fix {
    fn from(fix: String) -> Fix {
        Fix { fix, command: None }
    }
}

fn run(command: impl Into<String>, fix: &str) -> Fix {
    Fix { fix: fix.to_owned(), command: Some(command.into()) }
}

/// A message, among those of its log, on a machine.
pub(super) struct Explainer<'a> {
    pub(super) found: &'a Found,
    all: &'a [Found],
    pub(super) facts: &'a Facts,
}

impl Explainer<'_> {
    fn explain(&self) -> Explanation {
        let (cause, Fix { fix, command }) = self.cause_and_fix();
        Explanation { found: self.found.clone(), cause, evidence: self.evidence(), fix, command }
    }

    fn cause_and_fix(&self) -> (String, Fix) {
        let message = &self.found.message;
        let size = self.size();
        let pages_of = size.map_or_else(|| "huge pages".to_owned(), |size| format!("pages of {size}"));
        let bytes = message.bytes.map_or_else(|| "a region".to_owned(), |bytes| bytes.to_string());
        let name = message.name.as_deref().unwrap_or_default();
        let (cause, fix): (String, Fix) = match message.family {
            Family::PoolEmpty => (
                "The JVM was told to use large pages and found no free page in any pool: it runs wholly on base \
                 pages, and exits with status 0 all the same."
                    .into(),
                self.fill_pool(),
            ),
            Family::PoolShort => (
                format!(
                    "A region of {bytes} did not fit in what was left of the pool of {pages_of}: a JVM maps each \
                     region whole, so this region got none and is on smaller pages. The code cache comes first, \
                     then the heap, then the collector's tables."
                ),
                self.fill_pool(),
            ),
            Family::SharedMemory => match message.errno {
                Some(EPERM) => (
                    "SysV shared memory on huge pages is for root, for CAP_IPC_LOCK, and for members of one \
                     group; the JVM is none of them."
                        .into(),
                    run("sudo sysctl vm.hugetlb_shm_group=GID", "or -XX:+UseHugeTLBFS instead of -XX:+UseSHM, which needs no right"),
                ),
                Some(EINVAL) => (
                    "The segment is larger than kernel.shmmax lets it be, or its page size is not there.".into(),
                    run("sudo sysctl kernel.shmmax=18446744073692774399", "or -XX:+UseHugeTLBFS instead of -XX:+UseSHM"),
                ),
                Some(ENOSPC) => (
                    "All SysV shared memory together would exceed kernel.shmall.".into(),
                    run("sudo sysctl kernel.shmall=18446744073692774399", "or -XX:+UseHugeTLBFS instead of -XX:+UseSHM"),
                ),
                _ => (
                    "The pool was empty or too small for a region. JDK 8 and 11 try SysV shared memory last of \
                     all, so this is also what they say of an empty pool when nobody asked for shared memory."
                        .into(),
                    self.fill_pool(),
                ),
            },
            Family::KindNotConfigured => (
                format!("{name} was asked for, and no page of any pool could be mapped: the pools were empty."),
                self.fill_pool(),
            ),
            Family::ThpOff => (
                "THP was asked for where the machine's setting is never: the JVM runs on base pages. JDK 11 says \
                 nothing at all in this case."
                    .into(),
                self.allow("enabled", "madvise", self.facts.thp.pmd_enabled().map(|(word, _)| word)),
            ),
            Family::ShmemThpOff => (
                "ZGC's heap is shared memory, for which THP has a setting of its own: it was never, so the heap \
                 is on base pages. ZGC before JDK 25 says \"Enabled (Transparent)\" even so."
                    .into(),
                self.allow("shmem_enabled", "advise", self.facts.thp.pmd_shmem_enabled().map(|(word, _)| word)),
            ),
            Family::PageSizeIgnored => (
                format!("JDK 8 and 11 take pages of the kernel's default size ({pages_of}) alone."),
                "remove -XX:LargePageSizeInBytes; for another size: JDK 17 or later, or default_hugepagesz= at boot"
                    .into(),
            ),
            Family::PageSizeRefused if message.speaker.starts_with("ZGC") => (
                format!("ZGC uses {pages_of} and no others: the JVM did not start."),
                "remove -XX:LargePageSizeInBytes, or take another collector for larger pages: -XX:+UseG1GC".into(),
            ),
            Family::PageSizeRefused => (
                format!("{bytes} is no power of two, and no page has that size: the JVM did not start."),
                format!("-XX:LargePageSizeInBytes= with a size that this machine has: {}", self.sizes()).into(),
            ),
            Family::HeapCommit => (
                "ZGC could not get more memory for its heap. With explicit large pages that is a pool that is too \
                 small: ZGC alone takes pages as the heap grows, and alone does not fall back to base pages."
                    .into(),
                self.fill_pool(),
            ),
            Family::HeapLowered => (
                format!(
                    "ZGC ran out of memory for its heap and goes on with {bytes} less than -Xmx: \
                     OutOfMemoryError follows, while Runtime.maxMemory() still reports -Xmx."
                ),
                self.fill_pool(),
            ),
            Family::CommitFailed => (
                format!("{bytes} could not be committed on {pages_of}: the pool was too small."),
                self.fill_pool(),
            ),
            Family::UnknownFlag => match name {
                "UseSHM" | "UseHugeTLBFS" => (
                    format!("{name} was removed in JDK 22 (JDK-8261894): the JVM did not start."),
                    format!("remove {name}; -XX:+UseLargePages alone takes pages from the pools").into(),
                ),
                "UseLargePagesInMetaspace" => (
                    "UseLargePagesInMetaspace is gone since JDK 17: the JVM did not start.".into(),
                    "remove it: metaspace is never on pool pages".into(),
                ),
                _ => (
                    format!("This JVM does not know {name}: the JVM did not start."),
                    format!(
                        "remove {name}; if it is a diagnostic flag, put -XX:+UnlockDiagnosticVMOptions before it"
                    )
                    .into(),
                ),
            },
            Family::LargePagesOff if message.harm == super::Harm::None => (
                "The JVM was not told to use large pages, or switched them off itself; then a warning above \
                 says why. Where THP is set to always, it may have huge pages nevertheless."
                    .into(),
                run(
                    "hugewise inspect PID",
                    "-XX:+UseTransparentHugePages or -XX:+UseLargePages, if huge pages are wanted; what a running \
                     JVM has, the command tells",
                ),
            ),
            Family::LargePagesOff => (
                "The machine's THP settings keep ZGC from using huge pages.".into(),
                self.allow("shmem_enabled", "advise", self.facts.thp.pmd_shmem_enabled().map(|(word, _)| word)),
            ),
            Family::LargePagesOn => (
                "The flag is accepted. It does not say that any region got huge pages: a heap wholly on base \
                 pages prints this, too."
                    .into(),
                run("hugewise inspect PID", "reads what the kernel gave"),
            ),
            Family::BootPool => (
                format!(
                    "The kernel was told to set pages aside at boot and found memory for {} of {}.",
                    message.got.map_or_else(|| "some".to_owned(), |got| got.to_string()),
                    message.pages.map_or_else(|| "them".to_owned(), |pages| pages.to_string())
                ),
                "a smaller hugepages= on the kernel's command line; on NUMA machines per node: hugepages=0:N,1:N"
                    .into(),
            ),
            Family::BootParameter => (
                format!(
                    "The kernel did not take {name}: this processor has no such page size, or the parameter \
                     stands in the wrong place."
                ),
                format!(
                    "each hugepagesz= before its own hugepages=, with sizes that this machine has: {}",
                    self.sizes()
                )
                .into(),
            ),
            Family::NoBlock => (
                format!(
                    "Somebody needed {} of free memory in one piece, and there was none, even if much was free \
                     in small ones: memory is fragmented.",
                    self.block().map_or_else(|| "a large block".to_owned(), |bytes| bytes.to_string())
                ),
                run(
                    "echo 1 | sudo tee /proc/sys/vm/compact_memory",
                    "and try again; pools are best set aside at boot (hugepages=)",
                ),
            ),
            Family::BusError => (
                "Memory was touched that could not be had. With huge pages the usual cause is a control group \
                 (container) whose hugetlb limit is smaller than the mapping: mapping succeeds, touching kills. \
                 Others: a mapped file that was cut short, a full /dev/shm."
                    .into(),
                "raise the container's limit on huge pages (Kubernetes: hugepages-2Mi and the like, requests equal \
                 to limits) to what hugewise plan -- java … demands, or run without -XX:+UseLargePages"
                    .into(),
            ),
            Family::OutOfMemory => (
                format!(
                    "Memory ran out while {} of {} {pages_of} lay free in a pool: pool pages serve nobody who \
                     does not ask for them.",
                    message.got.unwrap_or_default(),
                    message.pages.unwrap_or_default()
                ),
                match size {
                    Some(size) => run(format!("sudo hugewise apply --pool {size}=N"), "with no more pages than are used"),
                    None => "a pool no larger than what is used: hugewise plan -- java …".into(),
                },
            ),
            Family::MemlockRule => (
                "A process used SysV shared memory on huge pages by its RLIMIT_MEMLOCK, a rule that the kernel \
                 wants to drop."
                    .into(),
                run("sudo sysctl vm.hugetlb_shm_group=GID", "with a group that the process is in"),
            ),
            Family::NoNode => (
                format!("No node has that many {name} left: they are not set aside there, or other pods have them."),
                run(
                    format!("sudo hugewise apply --pool {}=N", size.map_or_else(|| "SIZE".into(), |size| size.to_string())),
                    "on a node; then restart its kubelet, which counts pools at its start only",
                ),
            ),
            Family::ContainerLimit => (
                "The limit on huge pages was refused: Kubernetes wants memory or CPU beside huge pages, and the \
                 runtime wants the hugetlb controller of control groups."
                    .into(),
                "request memory or cpu too, with hugepages-2Mi in requests equal to limits; on the node: hugetlb \
                 must stand in /sys/fs/cgroup/cgroup.controllers"
                    .into(),
            ),
        };
        (cause, fix)
    }

    /// The page size that it is about: named by it, or this machine's default.
    pub(super) fn size(&self) -> Option<PageSize> {
        self.found.message.page_size.or_else(|| self.facts.meminfo.default_size.known().copied())
    }

    pub(super) fn sizes(&self) -> String {
        let sizes: Vec<String> = self.facts.machine_pools().map(|pool| pool.page_size.to_string()).collect();
        if sizes.is_empty() { "hugewise check lists them".to_owned() } else { sizes.join(", ") }
    }

    pub(super) fn pool(&self, size: PageSize) -> Option<&Pool> {
        self.facts.machine_pools().find(|pool| pool.page_size == size)
    }

    /// The block that the kernel could not find.
    fn block(&self) -> Option<Bytes> {
        let base = self.facts.base_page.known()?;
        base.bytes().0.checked_mul(1u64.checked_shl(self.found.message.order?)?).map(Bytes)
    }

    /// Sets THP to `word` in `file`, unless its setting `now` lets programs have huge pages.
    fn allow(&self, file: &str, word: &str, now: Option<&str>) -> Fix {
        if now.is_some_and(|now| now != "never" && now != "deny") {
            return "none any more: the setting allows it now; start the program anew".into();
        }
        run(
            format!("echo {word} | sudo tee /{}", thp::path(file).display()),
            "until the next boot, for every program that asks for it",
        )
    }

    /// Grows the pool by what all regions of this log lacked; the exact demand, the launch line tells.
    fn fill_pool(&self) -> Fix {
        const EXACTLY: &str = "hugewise plan -- java … tells exactly how many";
        let Some(size) = self.size() else { return EXACTLY.into() };
        let of_size = |found: &&Found| {
            let page_size = found.message.page_size;
            let default = self.facts.meminfo.default_size.known();
            page_size.as_ref().or(default) == Some(&size)
        };
        let lacking = |family: Family| {
            let of_family = self.all.iter().filter(move |found| found.message.family == family);
            of_family.filter(of_size).filter_map(|found| found.message.bytes)
        };
        // A harmless twin of a warning tells the same region again.
        let mut regions: Vec<Bytes> = lacking(Family::PoolShort).collect();
        regions.sort_unstable();
        regions.dedup();
        // Of a heap that was made in steps, every step may be told.
        regions.extend(lacking(Family::HeapCommit).chain(lacking(Family::HeapLowered)).max());
        let missing: Bytes = regions.into_iter().sum();
        if missing == Bytes::ZERO {
            return run(format!("sudo hugewise apply --pool {size}=N"), EXACTLY);
        }
        let needed = missing.pages_needed(size);
        if self.pool(size).is_some_and(|pool| pool.available() >= needed) {
            return format!(
                "the pool would hold the regions named here now: start the program anew; with the collector's \
                 tables, {EXACTLY}"
            )
            .into();
        }
        let held = self.pool(size).map_or(Pages(0), |pool| pool.total.saturating_sub(pool.available()));
        let pages = needed.0.saturating_add(held.0);
        run(
            format!("sudo hugewise apply --pool {size}={pages}"),
            &format!("holds the regions named here; with the collector's tables, {EXACTLY}"),
        )
    }
}
