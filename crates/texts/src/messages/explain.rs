//! Explains a message on this machine: reason, evidence and action.

use hugewise_linux::{
    action::Action,
    facts::Facts,
    hugepages::{pools::Pool, thp},
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Family, FoundMessage, Harm, ScannedLog};

/// Explanation of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The message and its position in the log.
    #[serde(flatten)]
    pub found: FoundMessage,
    /// Why the JVM or the kernel printed the message.
    pub detail: String,
    /// Readings of this machine that concern the message, each with its source; may be empty.
    pub evidence: Vec<String>,
    /// Changes to make; the user replaces N, GID and PID in a command by numbers, and COMMAND by the command line
    /// of the JVM.
    pub actions: Vec<Action>,
}

const EPERM: i32 = 1;
pub(super) const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

/// Explains the messages of one log by the state of this machine. The log may be older, or of another
/// machine: the evidence is this machine's in any case. `planned`: the actions of the plan for the command line
/// that printed the log; without it, the pages that the JVM needs are unknown.
pub fn explain(log: &ScannedLog, facts: &Facts, planned: Option<&[Action]>) -> Vec<Explanation> {
    log.found.iter().map(|one| Explainer { found: one, log, facts, planned }.explain()).collect()
}

/// Whether the evidence of a message contains pages that only a scan of every page frame finds.
pub fn needs_scan(log: &ScannedLog, facts: &Facts) -> bool {
    let explainers = log.found.iter().map(|one| Explainer { found: one, log, facts, planned: None });
    explainers.filter_map(|one| one.size()).any(|size| facts.contiguity.needs_scan(size))
}

fn run(command: impl Into<String>, change: &str) -> Action {
    Action::new(change).by(command)
}

/// Size of a number of pages.
fn held_by(size: PageSize, pages: u64) -> Bytes {
    Bytes(size.bytes().0.saturating_mul(pages))
}

/// A message, the other messages of its log, and the machine.
pub(super) struct Explainer<'a> {
    pub(super) found: &'a FoundMessage,
    pub(super) log: &'a ScannedLog,
    pub(super) facts: &'a Facts,
    planned: Option<&'a [Action]>,
}

impl Explainer<'_> {
    fn explain(&self) -> Explanation {
        let (detail, action) = self.detail_and_action();
        let actions = match self.planned {
            Some(planned) if action == self.fill_pool() => planned.to_vec(),
            _ if action.change.is_empty() => Vec::new(),
            _ => vec![action],
        };
        Explanation { found: self.found.clone(), detail, evidence: self.evidence(), actions }
    }

    fn detail_and_action(&self) -> (String, Action) {
        let message = &self.found.message;
        if let Some(advice) = message.advice() {
            return (self.filled(advice.meaning), Action::new(self.filled(advice.action)));
        }
        let size = self.size();
        let pages_of = size.map_or_else(|| "huge pages".to_owned(), |size| format!("pages of {size}"));
        let bytes = message.bytes.map_or_else(|| "a region".to_owned(), |bytes| bytes.to_string());
        let name = message.name.as_deref().unwrap_or_default();
        match message.family {
            Family::PoolEmpty => (
                "The JVM requested large pages and found no free page in any pool: it runs entirely on base \
                 pages, and reports no error in its exit status."
                    .into(),
                self.fill_pool(),
            ),
            Family::PoolShort => (
                format!(
                    "A region of {bytes} did not fit in the rest of the pool of {pages_of}. A JVM maps each region \
                     whole: this region is entirely on smaller pages. Regions are mapped in the order code cache, \
                     heap, tables of the collector."
                ),
                self.fill_pool(),
            ),
            Family::SharedMemory => match message.errno {
                Some(EPERM) => (
                    "SysV shared memory on huge pages needs root, CAP_IPC_LOCK, or membership in the group \
                     vm.hugetlb_shm_group; the JVM has none of them."
                        .into(),
                    run("sudo sysctl vm.hugetlb_shm_group=GID", "Permit SHM_HUGETLB to a group of the JVM, or use -XX:+UseHugeTLBFS, which needs no privilege, instead of -XX:+UseSHM"),
                ),
                Some(EINVAL) => (
                    "The segment is larger than kernel.shmmax, or its page size does not exist here.".into(),
                    run("sudo sysctl kernel.shmmax=18446744073692774399", "Remove the limit, or use -XX:+UseHugeTLBFS instead of -XX:+UseSHM"),
                ),
                Some(ENOSPC) => (
                    "All SysV shared memory together would exceed kernel.shmall.".into(),
                    run("sudo sysctl kernel.shmall=18446744073692774399", "Remove the limit, or use -XX:+UseHugeTLBFS instead of -XX:+UseSHM"),
                ),
                _ => (
                    "The pool was empty or too small for a region. JDK 8 and 11 try SysV shared memory last: they \
                     print this message for an empty pool even without -XX:+UseSHM."
                        .into(),
                    self.fill_pool(),
                ),
            },
            Family::KindNotConfigured => (
                format!("The JVM requested {name} and could map no page of any pool: the pools were empty."),
                self.fill_pool(),
            ),
            Family::ThpOff => (
                "The JVM requested THP, and the machine's setting is never: the JVM runs on base pages. JDK 11 \
                 prints no message in this case."
                    .into(),
                self.allow("enabled", "madvise", self.facts.thp.pmd_enabled().map(|(word, _)| word)),
            ),
            Family::ShmemThpOff => (
                "ZGC's heap is shared memory, and the THP setting for it, shmem_enabled, was never: the heap is \
                 on base pages. ZGC before JDK 25 prints \"Enabled (Transparent)\" nevertheless."
                    .into(),
                self.allow("shmem_enabled", "advise", self.facts.thp.pmd_shmem_enabled().map(|(word, _)| word)),
            ),
            Family::PageSizeIgnored => (
                format!("JDK 8 and 11 use pages of the kernel's default size ({pages_of}) only."),
                Action::new("Remove -XX:LargePageSizeInBytes; for another size: JDK 17 or later, or default_hugepagesz= at boot"),
            ),
            Family::PageSizeRefused if message.speaker.starts_with("ZGC") => (
                format!("ZGC supports {pages_of} only: the JVM did not start."),
                Action::new("Remove -XX:LargePageSizeInBytes, or use another collector for larger pages: -XX:+UseG1GC"),
            ),
            Family::PageSizeRefused => (
                format!("{bytes} is not a power of two, and so not a page size: the JVM did not start."),
                Action::new(format!("Set -XX:LargePageSizeInBytes to a size that this machine has: {}", self.sizes())),
            ),
            Family::HeapCommit => (
                "ZGC could not commit memory for its heap. With explicit large pages the pool is too small: \
                 unlike other collectors, ZGC takes pool pages as the heap grows, and does not fall back to base \
                 pages."
                    .into(),
                self.fill_pool(),
            ),
            Family::HeapLowered => (
                format!(
                    "ZGC could not commit its whole heap and continues with {bytes} less than -Xmx: an \
                     OutOfMemoryError can follow, and Runtime.maxMemory() still reports -Xmx."
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
                    Action::new(format!("Remove {name}; -XX:+UseLargePages is sufficient to take pages from the pools")),
                ),
                "UseLargePagesInMetaspace" => (
                    "UseLargePagesInMetaspace does not exist since JDK 17: the JVM did not start.".into(),
                    Action::new("Remove the flag: metaspace is never on pool pages"),
                ),
                _ => (
                    format!("This JVM does not have the flag {name}: it did not start."),
                    Action::new(format!(
                        "Remove {name}; if it is a diagnostic flag, put -XX:+UnlockDiagnosticVMOptions before it"
                    )),
                ),
            },
            Family::LargePagesOff if message.harm == Harm::None => (
                "The JVM was started without large pages, or disabled them itself; in that case a warning above \
                 gives the reason. If THP is set to always, the JVM can have huge pages nevertheless."
                    .into(),
                run(
                    "hugewise inspect PID",
                    "Read the pages of the running JVM; -XX:+UseTransparentHugePages or -XX:+UseLargePages request \
                     huge pages",
                ),
            ),
            Family::LargePagesOff => (
                "The machine's THP settings prevent ZGC from using huge pages.".into(),
                self.allow("shmem_enabled", "advise", self.facts.thp.pmd_shmem_enabled().map(|(word, _)| word)),
            ),
            Family::LargePagesOn => (
                "The JVM accepted the flag. The message does not prove that any region got huge pages: it is also \
                 printed with a heap entirely on base pages."
                    .into(),
                run("hugewise inspect PID", "Read the pages of each region from the kernel"),
            ),
            Family::BootPool => (
                format!(
                    "The kernel's command line reserves pages at boot, and the kernel allocated {} of {}.",
                    message.got.map_or_else(|| "some".to_owned(), |got| got.to_string()),
                    message.pages.map_or_else(|| "them".to_owned(), |pages| pages.to_string())
                ),
                Action::new(
                    "Reduce hugepages= on the kernel's command line; on NUMA machines set it per node: \
                     hugepages=0:N,1:N",
                ),
            ),
            Family::BootParameter => (
                format!(
                    "The kernel rejected {name}: the processor does not support the page size, or the parameter \
                     is in the wrong position."
                ),
                Action::new(format!(
                    "Put each hugepagesz= before its own hugepages=, with a size that this machine has: {}",
                    self.sizes()
                )),
            ),
            Family::NoBlock => (
                format!(
                    "The kernel found no contiguous free block of {}, even if much memory is free in smaller \
                     blocks: memory is fragmented.",
                    self.block().map_or_else(|| "a large block".to_owned(), |bytes| bytes.to_string())
                ),
                run(
                    "echo 1 | sudo tee /proc/sys/vm/compact_memory",
                    "Compact free memory and try again; a pool reserved at boot (hugepages=) does not depend on fragmentation",
                ),
            ),
            Family::BusError => self.bus_error(),
            Family::CommitMemory => self.commit(),
            Family::OutOfMemory => self.out_of_memory(size, &pages_of),
            Family::MemlockRule => (
                "A process was allowed SysV shared memory on huge pages by its RLIMIT_MEMLOCK, which the kernel \
                 deprecates."
                    .into(),
                run("sudo sysctl vm.hugetlb_shm_group=GID", "Permit SHM_HUGETLB to a group of the process"),
            ),
            Family::NoNode => (
                format!("No node has enough {name} left: they are not reserved there, or other pods use them."),
                run(
                    format!("sudo hugewise apply --pool {}=N", size.map_or_else(|| "SIZE".into(), |size| size.to_string())),
                    "Grow the pool on a node, then restart its kubelet, which reads the pools at its start only",
                ),
            ),
            Family::ContainerLimit => (
                "The limit on huge pages was refused: Kubernetes requires a request of memory or CPU with huge \
                 pages, and the runtime requires the hugetlb controller of control groups."
                    .into(),
                Action::new(
                    "Also request memory or cpu; set requests and limits of hugepages-SIZE equal; on the node, \
                     /sys/fs/cgroup/cgroup.controllers must contain hugetlb",
                ),
            ),
            Family::Unknown | Family::ProgramPool | Family::ProgramThp | Family::ProgramSetting | Family::Information => (
                format!("The line is about huge pages ({name}), and is not known here: it may report a fault."),
                Action::new("Read the documentation of the program that printed it; compare the machine: hugewise check"),
            ),
        }
    }

    /// The text, with the fields of the message.
    fn filled(&self, text: &str) -> String {
        let message = &self.found.message;
        let size = self.size();
        let size_text = size.map_or_else(|| "an unknown size".to_owned(), |size| size.to_string());
        let bytes = message.bytes.map_or_else(|| "a region".to_owned(), |bytes| bytes.to_string());
        let count = message.pages.or_else(|| Some(message.bytes?.pages_needed(size?).0));
        let pages = match count {
            Some(count) => format!("{count} pages of {size_text}"),
            None => format!("pages of {size_text}"),
        };
        let got = message.got.map_or_else(|| "too few".to_owned(), |got| got.to_string());
        let name = message.name.as_deref().unwrap_or_default();
        [
            ("{bytes}", &*bytes),
            ("{pages}", &*pages),
            ("{size}", &*size_text),
            ("{got}", &*got),
            ("{name}", name),
        ]
        .iter()
        .fold(text.to_owned(), |text, (field, value)| text.replace(field, value))
    }

    /// A pool in the kernel's report that memory ran out.
    fn out_of_memory(&self, size: Option<PageSize>, pages_of: &str) -> (String, Action) {
        let message = &self.found.message;
        let (free, total) = (message.got.unwrap_or_default(), message.pages.unwrap_or_default());
        let held = size.map(|size| format!(" ({})", held_by(size, total))).unwrap_or_default();
        if free == 0 {
            return (
                format!(
                    "Memory ran out while all {total} {pages_of}{held} of the pool were in use: the pool is not idle. Its \
                     pages cannot be returned while the program that uses them runs, and the other programs have only the \
                     rest of the memory."
                ),
                Action::new(
                    "Reduce the demand of the killed program or of the program that uses the pool (hugewise inspect --all \
                     lists it), or add memory; do not shrink the pool below the pages in use",
                )
                .by("hugewise inspect --all"),
            );
        }
        let idle = size.map(|size| format!(" ({})", held_by(size, free))).unwrap_or_default();
        let detail = format!(
            "Memory ran out while {free}{idle} of {total} {pages_of} were free in a pool: only programs that request \
             hugetlb pages can use them. Free pages may be reserved for a program."
        );
        let change = "Reduce the pool to the pages that programs use or have reserved";
        match size {
            Some(size) => (detail, run(format!("sudo hugewise apply --pool {size}=N"), change)),
            None => (detail, Action::new(format!("{change}; hugewise plan -- java … prints the demand"))),
        }
    }

    /// Page size of the message, or else the default size of this machine.
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

    /// Size of the block that the kernel could not allocate.
    fn block(&self) -> Option<Bytes> {
        let base = self.facts.base_page.known()?;
        base.bytes().0.checked_mul(1u64.checked_shl(self.found.message.order?)?).map(Bytes)
    }

    /// Sets THP to `word` in `file`, unless the present setting `now` allows huge pages.
    fn allow(&self, file: &str, word: &str, now: Option<&str>) -> Action {
        if now.is_some_and(|now| now != "never" && now != "deny") {
            return Action::new("Restart the program: the setting permits huge pages now");
        }
        run(
            format!("echo {word} | sudo tee /{}", thp::path(file).display()),
            "Permit huge pages to every program that requests them, until the next boot",
        )
    }

    /// Grows the pool to the demand of the command line. A log has only a part of that demand: it names neither
    /// the regions that did fit, nor all tables of the collector.
    fn fill_pool(&self) -> Action {
        let named = match self.pages_of_named_regions() {
            Some((pages, size)) => {
                format!(
                    "; the regions that this log names take {pages} pages of {size}, and do not include those that fitted"
                )
            }
            None => String::new(),
        };
        Action::new(format!("Grow the pool to the demand of the JVM's command line{named}"))
            .by("sudo hugewise apply -- COMMAND")
            .verified_by("hugewise plan -- COMMAND")
    }

    /// Pages of the regions in this log that did not fit; `None` if it names none.
    fn pages_of_named_regions(&self) -> Option<(Pages, PageSize)> {
        let size = self.size()?;
        let of_size = |found: &&FoundMessage| {
            let page_size = found.message.page_size;
            let default = self.facts.meminfo.default_size.known();
            page_size.as_ref().or(default) == Some(&size)
        };
        let lacking = |family: Family| {
            let of_family = self.log.found.iter().filter(move |found| found.message.family == family);
            of_family.filter(of_size).filter_map(|found| found.message.bytes)
        };
        // A harmless variant of a warning reports the same region a second time.
        let mut regions: Vec<Bytes> = lacking(Family::PoolShort).collect();
        regions.sort_unstable();
        regions.dedup();
        // A heap that is committed in steps may be reported at every step.
        regions.extend(lacking(Family::HeapCommit).chain(lacking(Family::HeapLowered)).max());
        let missing: Bytes = regions.into_iter().sum();
        (missing > Bytes::ZERO).then(|| (missing.pages_needed(size), size))
    }
}
