//! Facts of a machine and of a program that a log or a crash file contains.

mod patterns;

use std::sync::LazyLock;

use hugewise_linux::{
    facts::Facts,
    units::{Bytes, PageSize, Pages},
};

use super::needles::Needles;
use patterns::{FACTS, PATTERNS, Patterns, first, kib_of};

/// Large pages that a JVM requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    /// Pages of a pool.
    Explicit,
    /// THP.
    Transparent,
    Nothing,
}

/// Facts in a text. `None`: the text does not contain the fact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Name of the machine.
    pub host: Option<String>,
    /// Release of its kernel.
    pub kernel: Option<String>,
    /// Random id of the boot.
    pub boot_id: Option<String>,
    /// Pages of the pool of the default size: all, free, reserved.
    pub total: Option<Pages>,
    pub free: Option<Pages>,
    pub reserved: Option<Pages>,
    pub page_size: Option<PageSize>,
    /// Memory of the machine.
    pub memory: Option<Bytes>,
    pub available: Option<Bytes>,
    /// Base pages of the machine, and the size of one in KiB.
    pages: Option<u64>,
    base_kib: Option<u64>,
    pub commit_limit: Option<Bytes>,
    pub committed: Option<Bytes>,
    /// `vm.overcommit_memory`.
    pub overcommit: Option<u64>,
    /// THP modes of anonymous and of shared memory.
    pub thp: Option<String>,
    pub shmem_thp: Option<String>,
    /// Limit of a control group on the pages of a pool; `Some(None)`: none.
    pub hugetlb_limit: Option<Option<Bytes>>,
    /// Huge pages that a node of Kubernetes can give to pods.
    pub allocatable: Option<Bytes>,
    /// Options of the JVM.
    pub command_line: Option<String>,
    /// Major version of the JDK.
    pub jdk: Option<u32>,
    /// Large pages that the messages of the JVM show as requested.
    pub requested: Option<Requested>,
    /// Whether the messages show several: they are of several JVMs.
    disagrees: bool,
    /// `huge_pages` of PostgreSQL.
    pub huge_pages: Option<String>,
    /// Number of mappings of the process, and their limit.
    pub mappings: Option<u64>,
    pub max_mappings: Option<u64>,
    /// `RLIMIT_AS`.
    pub address_space: Option<Bytes>,
    /// `RLIMIT_MEMLOCK`; `Some(None)`: unlimited.
    pub locked_memory: Option<Option<Bytes>>,
    /// Page size of a mounted hugetlbfs; `Some(None)`: the default size.
    pub mounted: Option<Option<PageSize>>,
    /// Constraint under which the kernel killed a program for lack of memory.
    pub constraint: Option<String>,
    /// Memory of the killed program.
    pub killed: Option<Bytes>,
    /// Address of the fault, and its code (`si_code`).
    pub fault: Option<u64>,
    pub fault_code: Option<i32>,
    /// File that was mapped at the address of the fault.
    pub faulted_file: Option<String>,
    /// Function of the JVM at the fault.
    pub frame: Option<String>,
    /// Setting whose value the next line has.
    expected: Option<String>,
    /// Whether the first line of a report was read.
    has_begun: bool,
}

/// First lines of a crash file, and of the kernel's report that memory ran out.
const BEGINNINGS: [&str; 3] = [
    "# A fatal error has been detected by the Java Runtime",
    "# There is insufficient memory for the Java Runtime",
    " invoked oom-killer: ",
];

/// Ends of the names of settings whose value is on the line behind their name: a list of files, or a command that prints one.
const ON_NEXT_LINE: [&str; 5] = [
    "transparent_hugepage/enabled",
    "transparent_hugepage/shmem_enabled",
    "overcommit_memory",
    "B.max",
    "B.limit_in_bytes",
];

/// The setting whose value the next line has.
fn named_for_next(line: &str) -> Option<String> {
    let name = line.split_whitespace().next_back()?.trim_end_matches(':');
    ON_NEXT_LINE.iter().any(|end| name.ends_with(end)).then(|| name.to_owned())
}

impl Capture {
    /// Whether the line begins the report of another program or moment than that of the lines before.
    pub(super) fn begins_another(&self, line: &str) -> bool {
        self.has_begun && begins(line)
    }

    /// Takes the facts of a line; the first value of each counts.
    pub(super) fn line(&mut self, line: &str) {
        self.has_begun |= begins(line);
        let Some(patterns) = PATTERNS.as_ref() else { return };
        if let Some(name) = self.expected.take() {
            self.facts(patterns, &format!("{name}: {line}"));
        }
        if patterns.needles.has_candidate(line) {
            self.facts(patterns, line);
            self.expected = named_for_next(line);
        } else if let Some(fault) = self.fault.filter(|_| self.faulted_file.is_none()) {
            self.faulted_file = mapped(line, fault);
        }
    }

    fn facts(&mut self, patterns: &Patterns, line: &str) {
        for at in patterns.needles.candidates(line) {
            let (Some(pattern), Some((_, take))) = (patterns.facts.get(at), FACTS.get(at)) else { continue };
            if let Some(value) = pattern.captures(line).and_then(|found| found.get(1)) {
                take(self, value.as_str());
            }
        }
    }

    /// Notes what a message shows as requested.
    fn request(&mut self, requested: Requested) {
        self.disagrees |= self.requested.is_some_and(|other| other != requested);
        self.requested = (!self.disagrees).then_some(requested);
    }

    /// Memory of the machine: as the text names it, or by its base pages.
    pub fn all_memory(&self) -> Option<Bytes> {
        self.memory.or_else(|| kib_of(self.pages?.checked_mul(self.base_kib?)?))
    }

    /// The facts of the text, completed by those of its machine.
    pub(super) fn completed(&self, facts: &Facts) -> Capture {
        let mut all = self.clone();
        let pool = facts.meminfo.default_pool.known();
        if all.total.is_none() && all.free.is_none() {
            all.total = pool.map(|pool| pool.total);
            all.free = pool.map(|pool| pool.free);
            all.reserved = pool.and_then(|pool| pool.reserved);
        }
        first(&mut all.page_size, facts.meminfo.default_size.known().copied());
        first(&mut all.memory, facts.meminfo.total.known().copied());
        first(&mut all.available, facts.meminfo.available.known().copied());
        first(&mut all.thp, facts.thp.pmd_enabled().map(|(mode, _)| mode.to_owned()));
        first(&mut all.shmem_thp, facts.thp.pmd_shmem_enabled().map(|(mode, _)| mode.to_owned()));
        all
    }

    /// Whether a flag of the JVM is on in its command line; `None` if the command line is unknown.
    pub fn has_flag(&self, flag: &str) -> Option<bool> {
        let options = self.command_line.as_deref()?;
        let on = options.rfind(&format!("-XX:+{flag}"));
        Some(on.is_some() && on > options.rfind(&format!("-XX:-{flag}")))
    }

    /// Whether the JVM requested pages of a pool; `None` if the text does not show it.
    pub fn requested_pool(&self) -> Option<bool> {
        if let Some(requested) = self.requested {
            return Some(requested == Requested::Explicit);
        }
        let on = |flag: &str| self.has_flag(flag);
        let explicit = [on("UseLargePages")?, on("UseHugeTLBFS")?, on("UseSHM")?];
        Some(explicit.contains(&true) && on("UseTransparentHugePages") == Some(false))
    }

    /// Pages that are free and not reserved: withheld from all other programs.
    pub fn idle(&self) -> Option<(Pages, Bytes)> {
        let idle = self.free?.0.saturating_sub(self.reserved.unwrap_or(Pages(0)).0);
        Some((Pages(idle), Bytes(self.page_size?.bytes().0.saturating_mul(idle))))
    }

    /// The pool as text: `1024 pages of 2MiB, 1024 free, 978 reserved`.
    pub fn pool(&self) -> Option<String> {
        let (total, free) = (self.total?, self.free?);
        let size = self.page_size.map_or_else(|| "the default size".to_owned(), |size| size.to_string());
        let reserved = self.reserved.map_or_else(|| "?".to_owned(), |pages| pages.to_string());
        Some(format!("{total} pages of {size}, {free} free, {reserved} reserved"))
    }
}

/// `None` only if the beginnings are no patterns, which a test excludes.
static BEGINS: LazyLock<Option<Needles>> = LazyLock::new(|| Needles::new(BEGINNINGS.into_iter()));

fn begins(line: &str) -> bool {
    BEGINS.as_ref().is_some_and(|beginnings| beginnings.has_candidate(line))
}

/// The file of a line of `/proc/PID/maps` that contains the address of the fault; `""` for anonymous memory.
fn mapped(line: &str, fault: u64) -> Option<String> {
    if !line.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).ok());
    let (inode, path) = (words.nth(3)?, words.next().unwrap_or_default());
    let file = if path.starts_with('/') { path } else { "" };
    ((start?..end?).contains(&fault) && (inode == "0" || !file.is_empty())).then(|| file.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{patterns::kib, *};

    fn of(text: &str) -> Capture {
        let mut capture = Capture::default();
        text.lines().for_each(|line| capture.line(line));
        capture
    }

    /// Each fact has its own line, and its name is among those of the quick search.
    #[test]
    fn facts_are_taken_from_their_lines() {
        assert!(PATTERNS.is_some());
        let capture = of("\
Sep 14 06:02:15 node7 kernel: Linux version 6.1.0-18-amd64 (x)
[ 12.1] _BOOT_ID=0123456789abcdef0123456789abcdef
MemTotal:       65842340 kB
MemAvailable:   38120004 kB
CommitLimit:     1346904 kB
Committed_AS:    1902204 kB
HugePages_Total:    1024
HugePages_Free:     1000
HugePages_Rsvd:      978
Hugepagesize:       2048 kB
/sys/kernel/mm/transparent_hugepage/enabled:
always [madvise] never
[0.001s][info][pagesize]   Shared memory THP mode: never
/proc/sys/vm/overcommit_memory: 2
/proc/sys/vm/max_map_count (maximum number of memory map areas a process may have): 65530
Total number of mappings: 812
Command Line: -Xmx1g -XX:+UseLargePages a.jar
# JRE version: OpenJDK Runtime Environment (17.0.12+7) (build 17.0.12+7)
# V  [libjvm.so+0x81d3c3]  CodeHeap::allocate(unsigned long)+0x293
siginfo: si_signo: 7 (SIGBUS), si_code: 2 (BUS_ADRERR), si_addr: 0x00007f1060001000
rlimit: STACK 8192k, CORE 0k, AS 4194304k, MEMLOCK 64k
hugetlbfs /dev/hugepages1G hugetlbfs rw,relatime,pagesize=1024M 0 0
7f1060000000-7f1060200000 rw-s 00000000 00:10 77 /anon_hugepage (deleted)
[1.0] Node 0 Normal: 3011*4kB (UME) 204*8kB (UME) = 13852kB
[1.0] 8388608 pages RAM
[1.1] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)
[1.2] Out of memory: Killed process 30211 (batch) total-vm:5210116kB, anon-rss:4011408kB
root@pod:/# cat /sys/fs/cgroup/hugetlb.2MB.max
0
  hugepages-2Mi:      2Gi
huge_pages = try
[0.002s][info][gc,init] Large Page Support: Enabled (Explicit)
");
        let by_pages = Capture { memory: None, ..capture.clone() };
        assert_eq!(by_pages.all_memory(), Some(Bytes(32 << 30)));
        let text = |word: &str| Some(word.to_owned());
        assert_eq!(capture.pool(), text("1024 pages of 2MiB, 1000 free, 978 reserved"));
        assert_eq!((capture.thp, capture.shmem_thp), (text("madvise"), text("never")));
        assert_eq!(
            (capture.overcommit, capture.mappings, capture.max_mappings),
            (Some(2), Some(812), Some(65530))
        );
        assert_eq!((capture.host, capture.kernel), (text("node7"), text("6.1.0-18-amd64")));
        assert_eq!(capture.boot_id, text("0123456789abcdef0123456789abcdef"));
        assert_eq!((capture.jdk, capture.requested), (Some(17), Some(Requested::Explicit)));
        assert_eq!((capture.fault_code, capture.faulted_file), (Some(2), text("/anon_hugepage")));
        assert_eq!((capture.constraint, capture.killed), (text("MEMCG"), kib("4011408")));
        assert_eq!(
            (capture.hugetlb_limit, capture.allocatable),
            (Some(Some(Bytes(0))), Some(Bytes(2 << 30)))
        );
        assert_eq!((capture.huge_pages, capture.address_space), (text("try"), kib("4194304")));
        assert_eq!(capture.locked_memory, Some(kib("64")));
        assert_eq!(capture.mounted, Some(PageSize::new(Bytes(1 << 30)).ok()));
        for (line, limit) in [
            ("max locked memory       (kbytes, -l) 65536", kib("65536")),
            ("Max locked memory         8388608              8388608              bytes", kib("8192")),
            ("Max locked memory         unlimited            unlimited            bytes", None),
        ] {
            assert_eq!(of(line).locked_memory, Some(limit), "{line}");
        }
        for (line, requested) in [
            ("DOTNET_GCLargePages=1", Requested::Explicit),
            ("  \"System.GC.LargePages\": false,", Requested::Nothing),
        ] {
            assert_eq!(of(line).requested, Some(requested), "{line}");
        }
        assert_eq!((capture.commit_limit, capture.committed), (kib("1346904"), kib("1902204")));
        assert!(capture.frame.is_some_and(|frame| frame.contains("CodeHeap::")));
    }
}
