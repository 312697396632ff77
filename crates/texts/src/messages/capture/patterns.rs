//! The facts that lines contain: a pattern for each, and what takes its value.

use std::sync::LazyLock;

use hugewise_linux::units::{Bytes, PageSize, Pages};
use regex::Regex;

use super::{Capture, Requested};
use crate::messages::needles::Needles;

/// Longest command line that is kept, in characters.
const MAX_COMMAND_CHARS: usize = 4000;

/// A pattern with the value of a fact as its group, and what takes the value.
pub(super) type Fact = (&'static str, fn(&mut Capture, &str));
#[rustfmt::skip]
pub(super) const FACTS: &[Fact] = &[
    (r"\bHugePages_Total: +(\d+)", |it, value| first(&mut it.total, value.parse().ok().map(Pages))),
    (r"\bHugePages_Free: +(\d+)", |it, value| first(&mut it.free, value.parse().ok().map(Pages))),
    (r"\bHugePages_Rsvd: +(\d+)", |it, value| first(&mut it.reserved, value.parse().ok().map(Pages))),
    (r"\bHugepagesize: +(\d+) kB", |it, value| first(&mut it.page_size, kib(value).and_then(|size| PageSize::new(size).ok()))),
    (r"\bMemTotal: +(\d+) kB", |it, value| first(&mut it.memory, kib(value))),
    (r"\bMemAvailable: +(\d+) kB", |it, value| first(&mut it.available, kib(value))),
    (r"\bCommitLimit: +(\d+) kB", |it, value| first(&mut it.commit_limit, kib(value))),
    (r"\bCommitted_AS: +(\d+) kB", |it, value| first(&mut it.committed, kib(value))),
    (r"\bovercommit_memory\b[^:=]*[:=] *(\d)", |it, value| first(&mut it.overcommit, value.parse().ok())),
    (r"\bmax_map_count\b[^:=]*[:=] *(\d+)", |it, value| first(&mut it.max_mappings, value.parse().ok())),
    (r"Total number of mappings: (\d+)", |it, value| first(&mut it.mappings, value.parse().ok())),
    (r"transparent_hugepage/enabled\b.*\[(\w+)\]", |it, value| first(&mut it.thp, Some(value.to_owned()))),
    (r"transparent_hugepage/shmem_enabled\b.*\[(\w+)\]", |it, value| first(&mut it.shmem_thp, Some(value.to_owned()))),
    (r"\] +THP mode: (\w+)", |it, value| first(&mut it.thp, Some(value.to_owned()))),
    (r"Shared memory THP mode: (\w+)", |it, value| first(&mut it.shmem_thp, Some(value.to_owned()))),
    (r"(Large Page Support: Enabled \(Explicit|UseLargePages=1, UseTransparentHugePages=0|using large pages\. req_addr|large pages memory req_addr|commit memory\. req_addr.* page size: [2-9]\d{6,})",
        |it, _| it.request(Requested::Explicit)),
    (r"(Large Page Support: Enabled \(Transparent|UseLargePages=1, UseTransparentHugePages=1)", |it, _| it.request(Requested::Transparent)),
    (r"(Large Page Support: Disabled\s*$|UseLargePages=0|UseLargePages disabled)", |it, _| it.request(Requested::Nothing)),
    (r"^(?:Command Line|jvm_args|VM Arguments|CommandLine flags): (.*)", |it, value| first(&mut it.command_line, Some(value.chars().take(MAX_COMMAND_CHARS).collect()))),
    (r"^siginfo: .*si_addr: 0x([0-9a-f]+)", |it, value| first(&mut it.fault, u64::from_str_radix(value, 16).ok())),
    (r"^siginfo: .*si_code: (\d+)", |it, value| first(&mut it.fault_code, value.parse().ok())),
    (r"^rlimit: .*\bAS (\d+)k", |it, value| first(&mut it.address_space, kib(value))),
    (r"^rlimit: .*\bMEMLOCK (\d+k|infinity)", |it, value| first(&mut it.locked_memory, locked(value, 0))),
    (r"Max locked memory +(\d+|unlimited)", |it, value| first(&mut it.locked_memory, locked(value, 0))),
    (r"max locked memory +\(kbytes, -l\) +(\d+|unlimited)", |it, value| first(&mut it.locked_memory, locked(value, 10))),
    (r#"GCLargePages"?[=: ]+"?(?:0x)?(0|1|true|false)\b"#, |it, value| it.request(dotnet(value))),
    (r#"System\.GC\.LargePages"?[=: ]+"?(0|1|true|false)\b"#, |it, value| it.request(dotnet(value))),
    (r"^\S+ \S+ hugetlbfs (\S+)", |it, value| first(&mut it.mounted, Some(mounted_size(value)))),
    (r" - hugetlbfs \S+ (\S+)", |it, value| first(&mut it.mounted, Some(mounted_size(value)))),
    (r" on \S+ type hugetlbfs \((\S+)\)", |it, value| first(&mut it.mounted, Some(mounted_size(value)))),
    (r"JRE version: .*?\((?:build )?(?:1\.)?(\d+)", |it, value| first(&mut it.jdk, value.parse().ok())),
    (r"Server VM (?:Temurin-|\((?:build )?)(?:1\.)?(\d+)", |it, value| first(&mut it.jdk, value.parse().ok())),
    (r"^\W*[VC]  (\[[\w.-]+\+0x.*)", |it, value| first(&mut it.frame, Some(value.to_owned()))),
    (r"(?:uname: ?Linux|Linux version) (\d+\.\d+\S*)", |it, value| first(&mut it.kernel, Some(value.to_owned()))),
    (r#"(?:_BOOT_ID|boot_id)"?[=: "]+([0-9a-f-]{32,36})"#, |it, value| first(&mut it.boot_id, Some(value.replace('-', "")))),
    (r#"_HOSTNAME"?[=: "]+([\w.-]+)"#, |it, value| first(&mut it.host, Some(value.to_owned()))),
    (r"^(?:\w{3} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\d[T ][\d:.,+-]+Z?) ([\w.-]+) kernel: ", |it, value| first(&mut it.host, Some(value.to_owned()))),
    (r"constraint=CONSTRAINT_(\w+)", |it, value| first(&mut it.constraint, Some(value.to_owned()))),
    (r"Killed process .*anon-rss:(\d+)kB", |it, value| first(&mut it.killed, kib(value))),
    (r"(\d+) pages RAM", |it, value| first(&mut it.pages, value.parse().ok())),
    (r"^.*?Node \d+ \w+: \d+\*(\d+)kB ", |it, value| first(&mut it.base_kib, value.parse().ok())),
    (r"\bhugetlb\.\w+?B\.(?:max|limit_in_bytes)\b[: =]+(\d+|max)\b", |it, value| first(&mut it.hugetlb_limit, match value {
        "max" => Some(None),
        bytes => bytes.parse().ok().map(|bytes| Some(Bytes(bytes))),
    })),
    (r"^\s*hugepages-\w+: +(\d+(?:[KMG]i)?)\s*$", |it, value| first(&mut it.allocatable,
        if value.ends_with('i') { format!("{value}B") } else { value.to_owned() }.parse().ok())),
    (r#"\bhuge_pages ?= ?'?(on|try|off)\b"#, |it, value| first(&mut it.huge_pages, Some(value.to_owned()))),
];

pub(super) struct Patterns {
    pub needles: Needles,
    pub facts: Vec<Regex>,
}

/// `None` only if an expression does not compile, which a test excludes.
pub(super) static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    let facts = FACTS.iter().map(|(pattern, _)| Regex::new(pattern)).collect::<Result<_, _>>().ok()?;
    Some(Patterns { needles: Needles::new(FACTS.iter().map(|(pattern, _)| *pattern))?, facts })
});

/// The first value counts.
pub(super) fn first<T>(known: &mut Option<T>, value: Option<T>) {
    if known.is_none() {
        *known = value;
    }
}

/// A limit in units of `1 << shift` bytes, or with `k`; `unlimited` and `infinity` are none.
fn locked(value: &str, shift: u32) -> Option<Option<Bytes>> {
    match value.strip_suffix('k') {
        _ if !value.starts_with(|first: char| first.is_ascii_digit()) => Some(None),
        Some(kilobytes) => Some(Some(kib(kilobytes)?)),
        None => Some(Some(Bytes(value.parse::<u64>().ok()?.checked_mul(1 << shift)?))),
    }
}

/// Whether .NET requests pages of a pool.
fn dotnet(value: &str) -> Requested {
    if matches!(value, "1" | "true") { Requested::Explicit } else { Requested::Nothing }
}

/// The page size in the options of a mount.
fn mounted_size(options: &str) -> Option<PageSize> {
    let size = options.split(',').find_map(|option| option.strip_prefix("pagesize="))?;
    PageSize::new(size.parse().ok()?).ok()
}

pub(super) fn kib(value: &str) -> Option<Bytes> {
    kib_of(value.parse().ok()?)
}

pub(super) fn kib_of(kib: u64) -> Option<Bytes> {
    kib.checked_mul(1 << 10).map(Bytes)
}
