//! Causes of SIGBUS, and of a failure to commit memory on base pages.

use hugewise_linux::{action::Action, units::Bytes};

use super::{Answer, Candidate, Candidates};
use crate::messages::{Capture, Program, explainer::Explainer};

/// Smallest share of the memory that an idle pool must withhold to explain a shortage: a twentieth.
pub(super) const IDLE_SHARE: u64 = 20;
/// `si_code` of SIGBUS: a misaligned access, and the two codes of memory errors of the hardware.
const BUS_ADRALN: i32 = 1;
const BUS_MCEERR: [i32; 2] = [4, 5];
/// A process cannot have more mappings than `vm.max_map_count`; the last ones are needed by the failing call.
const MAPPINGS_LEFT: u64 = 8;

impl Explainer<'_> {
    pub(super) fn bus_error(&self) -> Answer {
        let facts = &self.known;
        let happened = "The process touched memory that the kernel could not provide (SIGBUS).";
        match facts.fault_code {
            Some(BUS_ADRALN) => {
                return Answer::certain(
                    "The program accessed a misaligned address (si_code 1): a fault of the program, not of its memory. Huge pages \
                     are not the cause.",
                    Action::new(
                        "Report the crash to the authors of the program or library that the problematic frame names",
                    ),
                );
            }
            Some(code) if BUS_MCEERR.contains(&code) => {
                return Answer::certain(
                    format!(
                        "The hardware reported a memory error (si_code {code}), and the kernel ended the program that mapped the page."
                    ),
                    Action::new(
                        "Replace the memory module; HardwareCorrupted in /proc/meminfo counts such memory",
                    )
                    .by("dmesg | grep -i 'memory failure'"),
                );
            }
            _ => {}
        }
        // The number of the signal on macOS and the BSDs.
        if self.found.text.contains("SIGBUS (0xa)") {
            return Answer::certain(
                "The number of the signal (0xa) is not of Linux: pools of huge pages are not the cause. A mapped file was \
                 truncated or replaced, or its file system is full.",
                Action::new("Compare the files that the problematic frame reads, and the free space of /tmp"),
            );
        }
        let pool = facts.pool().unwrap_or_default();
        let file = facts.faulted_file.as_deref();
        let read = facts.frame.as_deref().and_then(file_of_frame);
        let in_frame = "the problematic frame is one that reads a mapped file";
        let of_file = file.filter(|file| !file.is_empty() && !is_of_pool(file));
        let no_flag = facts.requested_pool() == Some(false);
        let in_file = format!("the address lies in the mapped file {}", of_file.unwrap_or_default());
        let flag_fact = "the program requested no pages of a pool";
        let limit = Candidate::new(
            format!(
                "a limit of the control group (container) on hugetlb pages is smaller than the mapping: mmap succeeds, and the \
                 first touch above the limit is SIGBUS; Kubernetes sets the limit to 0 if the pod requests no huge pages{}",
                if pool.is_empty() { String::new() } else { format!(" (the pool has {pool}: it is not empty)") }
            ),
            self.request_or_switch_off(),
        )
        .unless(of_file.is_some(), &in_file)
        .unless(read.is_some(), in_frame)
        .unless(no_flag, flag_fact)
        .unless(facts.hugetlb_limit == Some(None), "the control group has no limit on hugetlb pages")
        .unless(facts.total.is_some_and(|total| total.0 == 0), "the machine has no pool")
        .unless(facts.free.is_some_and(|free| free.0 == 0), format!("no page of the pool is free ({pool})"));
        let taken = Candidate::new(
            "other programs took the pages of the pool, or the nodes that the program may use have none",
            Action::new(
                "Grow the pool to the demand of all programs on it, on the nodes that this program may use, or run without \
                 -XX:+UseLargePages",
            )
            .by("sudo hugewise apply -- COMMAND"),
        )
        .unless(of_file.is_some(), &in_file)
        .unless(read.is_some(), in_frame)
        .unless(no_flag, flag_fact)
        .unless(facts.free.is_some_and(|free| free.0 > 0), format!("pages of the pool are free ({pool})"))
        .unless(facts.total.is_some_and(|total| total.0 == 0), "the machine has no pool")
        .unless(
            matches!(facts.hugetlb_limit, Some(Some(Bytes(0)))),
            "the limit of the control group on hugetlb pages is 0",
        );
        let named = of_file.or(read).unwrap_or("that it maps");
        let truncated = Candidate::new(
            match of_file.or(read) {
                Some(file) => format!(
                    "the address lies in the mapped file {file}: the file was truncated, or its file system is full; huge pages \
                     are not the cause"
                ),
                None => "a mapped file was truncated, its file system (/dev/shm, /tmp) is full, or a mapped device failed: huge pages are not the \
                          cause"
                    .to_owned(),
            },
            Action::new(format!(
                "Find out what truncates the file {named}; compare its size, and the free space of its file system"
            ))
            .by(format!("df -h {}", of_file.unwrap_or("/dev/shm /tmp"))),
        )
        .unless(file.is_some_and(is_of_pool), "the address lies in pages of a pool")
        .unless(file == Some(""), "the address lies in memory without a file")
        .unless(
            of_file.is_none() && facts.requested_pool() == Some(true) && is_start_of_page(facts),
            "the address is the beginning of a huge page, of a program that requested pages of a pool",
        )
        .unless(
            of_file.is_none()
                && facts.requested_pool() == Some(true)
                && facts.frame.as_deref().is_some_and(touches_memory),
            "the problematic frame is one that touches memory of the JVM for the first time",
        );
        Candidates {
            happened: happened.to_owned(),
            causes: vec![limit, taken, truncated],
            question: self.bus_error_question(),
        }
        .answer()
    }

    /// The remedy of a limit: request the pages for the container, or switch huge pages off.
    fn request_or_switch_off(&self) -> Action {
        if self.is_of_postgresql() {
            return Action::new(
                "Set huge_pages = off in postgresql.conf (initdb: -c huge_pages=off), or request huge pages for the pod or \
                 container (Kubernetes: hugepages-SIZE, requests equal to limits) for shared_buffers and the rest: hugewise plan \
                 -- postgres -D DIRECTORY prints the pages. A runtime that also limits rsvd lets huge_pages = try fall back",
            );
        }
        let facts = &self.known;
        let options = facts.command_line.as_deref().unwrap_or_default();
        let own = match options.contains("start.jar") || options.contains("solr") {
            true => {
                " (Solr's start script sets the flag itself: set GC_TUNE without it, or SOLR_OPTS=-XX:-UseLargePages)"
            }
            false => " (look for the flag in the start script and its variables)",
        };
        let reserved = match (facts.reserved, facts.page_size) {
            (Some(pages), Some(size)) if pages.0 > 0 => {
                format!("; {pages} pages of {size} were reserved, those of other programs included")
            }
            _ => String::new(),
        };
        Action::new(format!(
            "Run without -XX:+UseLargePages{own}, or request hugepages-SIZE for the container, requests equal to limits: the \
             pages that hugewise plan -- java OPTIONS prints{reserved}"
        ))
    }

    /// How to find out which cause of SIGBUS it is.
    fn bus_error_question(&self) -> Action {
        if self.is_of_postgresql() {
            return Action::new(
                "Does it start with huge_pages = off (initdb: -c huge_pages=off)? Then it is a limit on huge pages: leave it off, \
                 or request hugepages-SIZE for the pod, requests equal to limits, for the pages that hugewise plan -- postgres -D \
                 DIRECTORY prints. If not, look for a full /dev/shm",
            );
        }
        if self.log.names(Program::Java) || self.known.command_line.is_some() {
            return Action::new(
                "Does it start with -XX:-UseLargePages? Then compare the limit of its control group (hugetlb.SIZE.max) with the free \
                 pages of the pool; if not, the file mapped at si_addr of the crash file is the cause",
            )
            .by("cat /sys/fs/cgroup/hugetlb.*.max; grep Huge /proc/meminfo");
        }
        Action::new(
            "Does the program request huge pages? Then compare the limit of its control group (Kubernetes: hugepages-SIZE, 0 if \
             the pod requests none) with its demand, and run it once without them (PostgreSQL: huge_pages = off, java: \
             -XX:-UseLargePages). If not, look for a truncated mapped file and a full /dev/shm",
        )
        .by("cat /sys/fs/cgroup/hugetlb.*.max; df -h /dev/shm")
    }

    pub(super) fn is_of_postgresql(&self) -> bool {
        let named = self.found.message.speaker == "PostgreSQL" || self.log.names(Program::PostgreSql);
        named && !self.log.names(Program::Java) && self.known.command_line.is_none()
    }

    /// Causes of a failure to commit memory on base pages.
    pub(super) fn commit(&self) -> Answer {
        let facts = &self.known;
        let bytes = self.found.message.bytes;
        let what = bytes.map_or_else(|| "Memory".to_owned(), |bytes| bytes.to_string());
        let happened = format!("{what} on base pages could not be committed.");
        if let (Some(mappings), Some(limit)) = (facts.mappings, facts.max_mappings) {
            if mappings.saturating_add(MAPPINGS_LEFT) >= limit {
                return Answer::certain(
                    format!(
                        "{happened} The process has {mappings} mappings, and vm.max_map_count permits {limit}: huge pages and the \
                         amount of memory are not the cause."
                    ),
                    Action::new("Raise the limit, or find out what maps so many pieces (threads, small mmaps of a library)")
                        .by(format!("sudo sysctl vm.max_map_count={}", limit.saturating_mul(2))),
                );
            }
        }
        if let Some(limit) = facts.address_space.filter(|limit| bytes.is_some_and(|bytes| bytes >= *limit)) {
            return Answer::certain(
                format!(
                    "{happened} RLIMIT_AS, the limit of its address space, is {limit}: less than what was asked for."
                ),
                Action::new("Remove the limit (LimitAS= of the unit, ulimit -v of the shell)"),
            );
        }
        let idle = facts.idle();
        let is_large = |idle: Bytes| facts.memory.is_none_or(|memory| idle.0 >= memory.0 / IDLE_SHARE);
        let pool = facts.pool().unwrap_or_default();
        let withheld = Candidate::new(self.surplus(), self.return_pages()).unless(
            idle.is_some_and(|(_, idle)| idle.0 == 0 || !is_large(idle)),
            format!("no pool withholds a large part of the memory ({pool}): huge pages are not the cause"),
        );
        let enough = |memory: Option<Bytes>| memory.zip(bytes).is_some_and(|(memory, bytes)| memory >= bytes);
        let with_idle =
            facts.available.or(Some(Bytes(0))).zip(idle).map(|(available, (_, idle))| available + idle);
        let exhausted = Candidate::new(
            "other programs used up memory and swap",
            Action::new("Reduce -Xmx or the load of the machine, or add memory or swap"),
        )
        .unless(enough(facts.available), "enough memory was available")
        .unless(enough(with_idle), "with the idle pages of the pool, enough memory would be available");
        let limit = Candidate::new(
            "the commit limit is reached (vm.overcommit_memory=2)",
            Action::new("Raise vm.overcommit_ratio or add swap; a pool lowers the limit by its size")
                .by("grep Commit /proc/meminfo"),
        )
        .unless(
            facts.overcommit.is_some_and(|mode| mode != 2),
            format!("vm.overcommit_memory is {}", facts.overcommit.unwrap_or_default()),
        )
        .unless(
            facts
                .commit_limit
                .zip(facts.committed)
                .zip(bytes)
                .is_some_and(|((limit, now), bytes)| now + bytes < limit),
            "Committed_AS with this memory is below CommitLimit",
        );
        Candidates {
            happened,
            causes: vec![withheld, exhausted, limit],
            question: Action::new(
                "Which of these figures of that machine explains it: idle pages of a pool (HugePages_Free − HugePages_Rsvd), \
                 MemAvailable with SwapFree, or, with vm.overcommit_memory=2, CommitLimit − Committed_AS? The hs_err file has them",
            )
            .by("grep -E 'Huge|Mem|Swap|Commit' /proc/meminfo; cat /proc/sys/vm/overcommit_memory"),
        }
        .answer()
    }

    /// What an idle pool withholds, as a cause.
    fn surplus(&self) -> String {
        let facts = &self.known;
        let Some((pages, idle)) = facts.idle() else {
            return "an idle hugetlb pool withholds its pages from programs that do not request them (the text does not contain \
                    the pools)"
                .to_owned();
        };
        let memory = facts.memory.map(|memory| format!(" of {memory}")).unwrap_or_default();
        let available = match facts.available {
            Some(available) => format!(", and {available} were available to other programs"),
            None => String::new(),
        };
        format!(
            "the pool has {}: {pages} idle pages withhold {idle}{memory} from this program, which did not request huge \
             pages{available}. It is not a shortage of huge pages, but a surplus",
            facts.pool().unwrap_or_default()
        )
    }

    fn return_pages(&self) -> Action {
        let facts = &self.known;
        let used = facts.idle().and_then(|(idle, _)| Some(facts.total?.0.saturating_sub(idle.0)));
        let action = Action::new(
            "Return the idle pages of the pool on that machine, instead of adding memory; or start the program that the pool was \
             reserved for",
        );
        match facts.page_size.zip(used) {
            Some((size, used)) => {
                action.by(format!("sudo hugewise apply --pool {size}={used}")).verified_by("hugewise check")
            }
            None => action,
        }
    }
}

/// Whether a mapped file is one of anonymous pages of a pool, or lies below a usual mount point of hugetlbfs.
fn is_of_pool(file: &str) -> bool {
    let is_mount_point = |name: &str| {
        ["huge", "hugepages", "hugetlb", "hugetlbfs"].contains(&name) || name.starts_with("hugepages-")
    };
    let folders = file.rsplit_once('/').map_or("", |(folders, _)| folders);
    file.starts_with("/anon_hugepage") || folders.split('/').any(is_mount_point)
}

/// The file that a function of the JVM reads through a mapping.
fn file_of_frame(frame: &str) -> Option<&'static str> {
    if frame.contains("PerfMemory") || frame.contains("PerfData") || frame.contains("PerfLong") {
        return Some("of the JVM's counters, /tmp/hsperfdata_USER/PID");
    }
    frame
        .contains("libzip")
        .then_some("that is read, a jar or zip file that was replaced while it was in use")
}

/// Whether the fault is at the beginning of a huge page.
fn is_start_of_page(facts: &Capture) -> bool {
    facts.fault.zip(facts.page_size).is_some_and(|(fault, size)| fault % size.bytes().0 == 0)
}

/// Whether a function of the JVM touches its memory for the first time.
fn touches_memory(frame: &str) -> bool {
    ["CodeHeap::", "pretouch", "PretouchTask", "G1PageBasedVirtualSpace", "ZPhysicalMemory", "CardTable"]
        .iter()
        .any(|name| frame.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_of_a_pool_by_its_place_and_not_by_its_name() {
        for file in
            ["/anon_hugepage (deleted)", "/dev/hugepages/rtemap_0", "/mnt/huge/a", "/dev/hugepages-1G/b"]
        {
            assert!(is_of_pool(file), "{file}");
        }
        for file in ["/data/hugestore.db", "/srv/hugewise.jar", "/opt/huge.zip", "/tmp/a", ""] {
            assert!(!is_of_pool(file), "{file}");
        }
    }
}
