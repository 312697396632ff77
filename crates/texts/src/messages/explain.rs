//! Explains a message on this machine: reason, evidence and action.

use hugewise_linux::{
    action::Action,
    hugepages::{pools::Pool, thp},
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Family, FoundMessage, Harm, ScannedLog,
    explainer::{Context, EINVAL, Explainer},
    hypotheses::{Answer, Hypothesis},
};

/// Smallest page that is a huge page, in bytes.
const MIN_HUGE_PAGE_BYTES: u64 = 1 << 20;

/// Smallest region for which HotSpot prefers huge pages: eight of 2 MiB, in bytes.
const MIN_LARGE_REGION_BYTES: u64 = 16 << 20;

/// Explanation of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The message and its position in the log.
    #[serde(flatten)]
    pub found: FoundMessage,
    /// Why the JVM or the kernel printed the message.
    pub detail: String,
    /// Facts that concern the message, each with its source: those in the text, then readings of the machine, which are
    /// named foreign if the text is not known to be of it. May be empty.
    pub evidence: Vec<String>,
    /// Possible causes, if the message has several. Those that no fact excludes are in `detail`.
    pub hypotheses: Vec<Hypothesis>,
    /// What decides between the causes that are left, and a command that shows it; null if the cause is known.
    pub question: Option<Action>,
    /// Changes to make; the user replaces N, GID and PID in a command by numbers, and COMMAND by the command line
    /// of the JVM.
    pub actions: Vec<Action>,
}

/// Explains the messages of one text by the facts in it, and by those of the machine if the text is of it.
pub fn explain(log: &ScannedLog, context: &Context<'_>) -> Vec<Explanation> {
    log.found.iter().map(|one| Explainer::new(one, log, context).explain()).collect()
}

/// Whether the evidence of a message contains pages that only a scan of every page frame finds.
pub fn needs_scan(log: &ScannedLog, context: &Context<'_>) -> bool {
    let explainers = log.found.iter().map(|one| Explainer::new(one, log, context));
    explainers.filter_map(|one| one.size()).any(|size| context.facts.contiguity.needs_scan(size))
}

fn run(command: impl Into<String>, change: &str) -> Action {
    Action::new(change).by(command)
}

impl Explainer<'_> {
    fn explain(&self) -> Explanation {
        let mut answer = self.causes().unwrap_or_else(|| {
            let (detail, action) = self.detail_and_action();
            Answer::certain(detail, action)
        });
        if let (Some(planned), [action]) = (self.planned, &answer.actions[..]) {
            if action.command == self.fill_pool().command {
                answer.actions = planned.to_vec();
            }
        }
        let Answer { detail, actions, hypotheses, question } = answer;
        let mut found = self.found.clone();
        if found.message.family == Family::RegionPages && self.fell_back() {
            found.message.harm = Harm::NotHuge;
        }
        Explanation { found, detail, evidence: self.evidence(), hypotheses, question, actions }
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
            Family::PoolShort => (
                format!(
                    "A region of {bytes} did not fit in the rest of the pool of {pages_of}. A JVM maps each region \
                     whole: this region is entirely on smaller pages. Regions are mapped in the order code cache, \
                     heap, tables of the collector. Direct buffers and malloc never take pages of the pool, and only ZGC's heap \
                     grows into it: nothing fails later."
                ),
                self.fill_pool(),
            ),
            Family::SharedMemory => match message.errno {
                Some(EINVAL) => (
                    "The segment is larger than kernel.shmmax, or its page size does not exist here.".into(),
                    run("sudo sysctl kernel.shmmax=18446744073692774399", "Remove the limit, or use -XX:+UseHugeTLBFS instead of -XX:+UseSHM"),
                ),
                _ => (
                    "All SysV shared memory together would exceed kernel.shmall.".into(),
                    run("sudo sysctl kernel.shmall=18446744073692774399", "Remove the limit, or use -XX:+UseHugeTLBFS instead of -XX:+UseSHM"),
                ),
            },
            Family::ShmemThpOff => (
                "ZGC's heap is shared memory, and the THP setting for it, shmem_enabled, was never: the heap is \
                 on base pages. ZGC before JDK 25 prints \"Enabled (Transparent)\" nevertheless."
                    .into(),
                self.allow("shmem_enabled", "advise", self.known.shmem_thp.as_deref()),
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
                self.allow("shmem_enabled", "advise", self.known.shmem_thp.as_deref()),
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
            Family::MemlockRule => (
                "A process was allowed SysV shared memory on huge pages by its RLIMIT_MEMLOCK, which the kernel \
                 deprecates."
                    .into(),
                run("sudo sysctl vm.hugetlb_shm_group=GID", "Permit SHM_HUGETLB to a group of the process"),
            ),
            Family::RegionPages => self.region_pages(&bytes, name),
            // Those with several causes are explained by their hypotheses.
            _ => (
                format!("The line is about huge pages ({name}), and is not known here: it may report a fault."),
                Action::new("Read the documentation of the program that printed it; compare the machine: hugewise check"),
            ),
        }
    }

    /// The text, with the fields of the message.
    pub(super) fn filled(&self, text: &str) -> String {
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

    /// Page size of the message, or else the default size of the text or of this machine.
    pub(super) fn size(&self) -> Option<PageSize> {
        let default = || self.facts.meminfo.default_size.known().copied();
        self.found.message.page_size.or(self.known.page_size).or_else(default)
    }

    /// Whether a JVM that requested large pages prints a region on base pages.
    pub(super) fn fell_back(&self) -> bool {
        let message = &self.found.message;
        let base = message.page_size.is_some_and(|size| size.bytes().0 < MIN_HUGE_PAGE_BYTES);
        // The JVM chooses base pages for small regions, and says so for some of them.
        let is_large = message.bytes.is_some_and(|bytes| bytes.0 >= MIN_LARGE_REGION_BYTES);
        let chosen =
            self.found.text.contains("req_page_size=4K") || self.found.text.contains("req_page_size=64K");
        base && is_large && !chosen && self.known.requested_pool() == Some(true)
    }

    /// A region of a JVM, with the page size that the JVM requested for it.
    fn region_pages(&self, bytes: &str, name: &str) -> (String, Action) {
        let size = self.found.message.page_size.map_or_else(|| "?".to_owned(), |size| size.to_string());
        if self.fell_back() {
            return (
                format!(
                    "The JVM requested large pages, and has the region {name} of {bytes} on pages of {size}: the pool had too few free \
                     pages for it."
                ),
                self.fill_pool(),
            );
        }
        let detail = format!(
            "The JVM requested pages of {size} for the region {name} of {bytes}. This does not prove that it has them."
        );
        (detail, Action::new("Read the pages of each region from the kernel").by("hugewise inspect PID"))
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
    pub(super) fn allow(&self, file: &str, word: &str, now: Option<&str>) -> Action {
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
    pub(super) fn fill_pool(&self) -> Action {
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
