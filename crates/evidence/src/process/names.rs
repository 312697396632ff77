//! Names of regions: from the kernel for every process, and from the JVM for its own regions.

use std::ops::Range;

use hugewise_databases::postgres;
use hugewise_jvm::regions::{self, Source};
use hugewise_linux::{
    proc::{process::Process, smaps::Vma},
    root::Root,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Known, Options, runtime::Runtime, stacks::Stacks};

/// Name of the stack of the main thread.
const MAIN_STACK: &str = "stack of the main thread";
/// End of the name of memory that belongs to a file's data, and has no file.
const BSS: &str = " (bss)";
/// The kernel that excludes the stacks of threads from huge pages.
pub const STACKS_MARKED_SINCE: (u32, u32) = (6, 7);
/// Addresses of the heap of Go on 64-bit machines.
const GO_HEAP: Range<u64> = 0xc0_0000_0000..0xe0_0000_0000;

/// Kind of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Memory of a JVM that its large-page flags affect: heap, card table, code cache …
    JvmLargePages,
    /// Memory of a database server that its huge-page setting affects: the shared memory of PostgreSQL.
    Database,
    /// Memory of malloc: main arena, other arenas, named mappings.
    Malloc,
    /// Stack of a thread.
    Stack,
    /// Other anonymous memory.
    Anonymous,
    /// Shared memory: memfd, System V, files on tmpfs, shared anonymous.
    Shared,
    /// A mapped file.
    File,
    /// Mapping of the kernel, such as `[vdso]`.
    Kernel,
    /// Reserved addresses without access.
    Reserved,
}

impl Kind {
    fn of_jvm(kind: regions::RegionKind) -> Kind {
        use regions::RegionKind as Jvm;
        match kind {
            Jvm::Heap | Jvm::CodeCache | Jvm::GcTable => Kind::JvmLargePages,
            Jvm::Metaspace | Jvm::ClassSpace | Jvm::Cds | Jvm::Internal => Kind::Anonymous,
            Jvm::ThreadStack => Kind::Stack,
            Jvm::Malloc => Kind::Malloc,
            Jvm::Other => Kind::File,
        }
    }
}

/// A named address range: several mappings, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub addresses: Range<u64>,
    pub name: String,
    pub kind: Kind,
    /// Kind of the JVM's region; `None` outside of the JVM's own regions.
    pub of_jvm: Option<regions::RegionKind>,
}

impl Part {
    /// Whether it is memory without a file that the program has, in a JVM or not: all of it but the stack of the main
    /// thread. The same set as [`Vma::is_anonymous`].
    pub fn is_anonymous(&self) -> bool {
        match self.kind {
            Kind::Anonymous | Kind::Malloc | Kind::JvmLargePages => true,
            Kind::Stack => self.name != MAIN_STACK,
            _ => self.name.ends_with(BSS),
        }
    }
}

/// The names of all mappings of a process.
#[derive(Debug)]
pub struct Naming {
    /// Sorted by address, without overlap; together they contain every mapping.
    pub parts: Vec<Part>,
    pub source: String,
    pub notes: Vec<String>,
}

/// Names every mapping. With `options.attach`, a JVM is queried through its attach socket, which costs it a short
/// stop.
pub fn name(known: &Known<'_>, vmas: &[Vma], options: Options) -> Naming {
    let Known { root, machine, process, environment, runtime } = *known;
    let marked = machine.since(STACKS_MARKED_SINCE) == Some(true);
    let stacks = Stacks::find(root, process, vmas, marked, runtime.is_some());
    let mut everywhere = generic(vmas, &stacks, runtime);
    if environment.tunable("glibc.malloc.hugetlb") == Some("2") {
        for part in everywhere.iter_mut().filter(|part| part.name == OF_A_POOL) {
            part.name = "malloc, hugetlb pages (glibc.malloc.hugetlb=2)".to_owned();
            part.kind = Kind::Malloc;
        }
    }
    everywhere = overlay(everywhere, database(vmas));
    let own = jvm(root, process, vmas, options);
    Naming {
        parts: if own.parts.is_empty() { everywhere } else { overlay(everywhere, own.parts) },
        source: own.source,
        notes: own.notes,
    }
}

/// The JVM's names for its regions; no parts if the process is not a JVM.
fn jvm(root: &Root, process: &Process, vmas: &[Vma], options: Options) -> Naming {
    let by_kernel = |notes| Naming { parts: Vec::new(), source: "the kernel".to_owned(), notes };
    if !options.attach && !regions::has_libjvm(vmas) {
        return by_kernel(Vec::new());
    }
    let named = regions::name(root, process.pid, vmas, options.attach, options.max_heap);
    let mut notes = named.notes;
    let source = match named.source {
        Source::Attached { commands } => format!("the JVM ({}) and its memory", commands.join(", ")),
        Source::Passive { tables: true } => "the JVM's own tables, read in its memory".to_owned(),
        Source::Passive { tables: false } => "the order of the mappings".to_owned(),
        Source::NotAJvm(why) => {
            notes.push(why);
            return by_kernel(notes);
        }
    };
    // Ranges of kind `Other` keep their generic names.
    let known = named.ranges.into_iter().filter(|range| range.kind != regions::RegionKind::Other);
    let parts = known
        .map(|range| Part {
            addresses: range.start..range.end,
            kind: Kind::of_jvm(range.kind),
            of_jvm: Some(range.kind),
            name: range.name,
        })
        .collect();
    Naming { parts, source, notes }
}

/// The regions of a database server.
fn database(vmas: &[Vma]) -> Vec<Part> {
    let shared = postgres::shared_memory(vmas).filter(|_| postgres::runs_in(vmas));
    let part = |vma: &Vma| Part {
        addresses: vma.addresses.clone(),
        name: "PostgreSQL shared memory".to_owned(),
        kind: Kind::Database,
        of_jvm: None,
    };
    shared.map(part).into_iter().collect()
}

/// Whether the command line of a server excludes pages of a pool; the configuration, which is not read, may as well.
pub fn excludes_pool(command: &[String]) -> bool {
    let value = |word: &String| match word.split_once("huge_pages=")? {
        ("" | "--" | "-c", value) => Some(value == "off"),
        _ => None,
    };
    command.iter().rev().find_map(value).unwrap_or(false)
}

/// Name of explicit huge pages whose user is unknown.
const OF_A_POOL: &str = "anonymous, hugetlb pages";

/// Replaces the ranges of `own` in `parts`. Both are sorted by address.
fn overlay(parts: Vec<Part>, own: Vec<Part>) -> Vec<Part> {
    let mut all = Vec::with_capacity(parts.len() + own.len());
    let mut first = 0;
    for part in parts {
        let mut left = part.addresses.start;
        while own.get(first).is_some_and(|own| own.addresses.end <= part.addresses.start) {
            first += 1;
        }
        for own in own[first..].iter().take_while(|own| own.addresses.start < part.addresses.end) {
            if left < own.addresses.start {
                all.push(Part { addresses: left..own.addresses.start, ..part.clone() });
            }
            left = left.max(own.addresses.end);
        }
        if left < part.addresses.end {
            all.push(Part { addresses: left..part.addresses.end, ..part });
        }
    }
    all.extend(own);
    all.sort_by_key(|part| part.addresses.start);
    all
}

/// Names from the kernel, for the mappings of any process.
fn generic(vmas: &[Vma], stacks: &Stacks, runtime: Option<&Runtime>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (index, vma) in vmas.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| vmas.get(before));
        let (name, kind) = match stacks.name(vma) {
            Some(name) => (name, Kind::Stack),
            None if of_glibc(vma, runtime) && is_arena(vma, vmas.get(index + 1)) => {
                ("malloc arena".to_owned(), Kind::Malloc)
            }
            None => match before.filter(|before| is_bss(vma, before)) {
                Some(before) => (format!("{}{BSS}", before.name), Kind::File),
                None => with_runtime(by_name(vma), vma, runtime),
            },
        };
        // Mappings with different madvise advice stay separate regions.
        let same_advice = before.is_some_and(|before| before.advice == vma.advice);
        let belongs = |last: &&mut Part| {
            // The reserved rest of an arena belongs to the arena.
            let is_rest = last.name == "malloc arena" && kind == Kind::Reserved;
            goes_on(last, vma) && (is_rest || (last.name == name && last.kind == kind && same_advice))
        };
        match parts.last_mut().filter(belongs) {
            Some(last) => last.addresses.end = vma.addresses.end,
            None => parts.push(Part { addresses: vma.addresses.clone(), name, kind, of_jvm: None }),
        }
    }
    parts
}

/// Whether `vma` continues `last`. Adjacent stacks stay separate, and so do adjacent mappings of one file.
fn goes_on(last: &Part, vma: &Vma) -> bool {
    last.addresses.end == vma.addresses.start && !matches!(last.kind, Kind::Stack | Kind::Shared)
}

/// Whether an arena of glibc may be here.
fn of_glibc(vma: &Vma, runtime: Option<&Runtime>) -> bool {
    !runtime.is_some_and(|runtime| match runtime {
        Runtime::Go => GO_HEAP.contains(&vma.addresses.start),
        runtime => runtime.replaces_malloc(),
    })
}

/// The name of memory in a process whose anonymous memory `runtime` manages, or at least part of it.
fn with_runtime(named: (String, Kind), vma: &Vma, runtime: Option<&Runtime>) -> (String, Kind) {
    let Some(runtime) = runtime else { return named };
    match (vma.name.as_str(), named.1) {
        ("", Kind::Anonymous | Kind::Reserved)
            if *runtime == Runtime::Go && GO_HEAP.contains(&vma.addresses.start) =>
        {
            ("Go heap".to_owned(), named.1)
        }
        ("", Kind::Anonymous) => (format!("anonymous ({} or mmap)", runtime.name()), Kind::Anonymous),
        ("[heap]", _) if runtime.replaces_malloc() => ("[heap], by brk".to_owned(), Kind::Malloc),
        _ => named,
    }
}

/// A glibc arena begins at a multiple of 64 MiB (`HEAP_MAX_SIZE`); glibc makes it accessible as it grows.
fn is_arena(vma: &Vma, next: Option<&Vma>) -> bool {
    const ARENA: u64 = 64 << 20;
    let Range { start, end } = vma.addresses;
    vma.name.is_empty()
        && vma.permissions == "rw-p"
        && start % ARENA == 0
        && end - start < ARENA
        && next.is_some_and(|next| {
            next.name.is_empty()
                && next.permissions == "---p"
                && next.addresses.start == end
                && next.addresses.end == start + ARENA
        })
}

/// Whether `vma` is the bss of the file mapped before it. A mapping above 1 MiB is most likely other memory
/// that happens to follow the file's data.
fn is_bss(vma: &Vma, before: &Vma) -> bool {
    vma.name.is_empty()
        && vma.addresses.end - vma.addresses.start <= 1 << 20
        && vma.permissions == "rw-p"
        && before.name.starts_with('/')
        && before.permissions == "rw-p"
        && before.inode != 0
        && before.addresses.end == vma.addresses.start
}

fn by_name(vma: &Vma) -> (String, Kind) {
    let name = vma.name.as_str();
    let plain = name.strip_suffix(" (deleted)").unwrap_or(name);
    let inner = |prefix: &str| plain.strip_prefix(prefix).map(|rest| rest.trim_end_matches(']'));
    if let Some(name) = inner("[anon:") {
        // glibc and the JVM name some of their mappings.
        let kind = match name {
            name if name.contains("stack") => Kind::Stack,
            name if name.contains("malloc") => Kind::Malloc,
            _ => Kind::Anonymous,
        };
        return (name.to_owned(), kind);
    }
    if let Some(name) = inner("[anon_shmem:") {
        return (name.to_owned(), Kind::Shared);
    }
    if let Some(name) = plain.strip_prefix("/memfd:") {
        return (format!("memfd {name}"), Kind::Shared);
    }
    if let Some(key) = plain.strip_prefix("/SYSV") {
        return (format!("SysV segment {} (key 0x{key})", vma.inode), Kind::Shared);
    }
    match (plain, vma.permissions.as_bytes()) {
        ("", [b'-', b'-', b'-', ..]) => ("reserved, not accessible".to_owned(), Kind::Reserved),
        ("", _) => ("anonymous".to_owned(), Kind::Anonymous),
        ("[heap]", _) => ("malloc main arena [heap]".to_owned(), Kind::Malloc),
        ("[stack]", _) => (MAIN_STACK.to_owned(), Kind::Stack),
        ("/anon_hugepage", _) => (OF_A_POOL.to_owned(), Kind::Anonymous),
        ("/dev/zero", _) => ("shared anonymous".to_owned(), Kind::Shared),
        (path, _) if vma.tmpfs().is_some() => (format!("{path} (tmpfs)"), Kind::Shared),
        (path, _) if vma.mount.is_none() && path.starts_with("/dev/shm/") => (path.to_owned(), Kind::Shared),
        (path, _) if path.starts_with('[') => (path.to_owned(), Kind::Kernel),
        (path, permissions) => {
            let part = match permissions {
                [_, _, b'x', ..] => "text",
                [_, b'w', ..] => "data",
                [b'r', ..] => "read-only",
                _ => "reserved",
            };
            (format!("{path} ({part})"), Kind::File)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(addresses: Range<u64>, permissions: &str, name: &str) -> Vma {
        Vma { addresses, permissions: permissions.to_owned(), name: name.to_owned(), ..Vma::default() }
    }

    fn named(vmas: &[Vma]) -> Vec<(u64, String, Kind)> {
        let parts = generic(vmas, &Stacks::default(), None);
        parts.into_iter().map(|part| (part.addresses.start, part.name, part.kind)).collect()
    }

    #[test]
    fn what_the_kernel_shows_becomes_a_name() {
        for (name, permissions, expected) in [
            ("[heap]", "rw-p", "malloc main arena [heap]"),
            ("[anon:glibc: malloc]", "rw-p", "glibc: malloc"),
            ("/memfd:java_heap (deleted)", "rw-s", "memfd java_heap"),
            ("/SYSV00000000 (deleted)", "rw-s", "SysV segment 0 (key 0x00000000)"),
            ("/usr/lib/libc.so.6", "r-xp", "/usr/lib/libc.so.6 (text)"),
            ("/a file: with\\012 all", "rw-p", "/a file: with\\012 all (data)"),
            ("[vdso]", "r-xp", "[vdso]"),
            ("", "---p", "reserved, not accessible"),
        ] {
            assert_eq!(by_name(&vma(0..1, permissions, name)).0, expected);
        }
    }

    #[test]
    fn neighbours_of_one_name_are_one_region() {
        let vmas = [
            vma(0x1000..0x2000, "rw-p", ""),
            vma(0x2000..0x3000, "r--p", ""),
            vma(0x4000..0x5000, "rw-p", ""),
        ];
        assert_eq!(named(&vmas).iter().map(|(start, ..)| *start).collect::<Vec<_>>(), [0x1000, 0x4000]);
    }

    #[test]
    fn an_arena_is_known_by_its_place() {
        let at = 64 << 20;
        let vmas = [vma(at..at + 0x21000, "rw-p", ""), vma(at + 0x21000..2 * at, "---p", "")];
        assert_eq!(named(&vmas), [(at, "malloc arena".to_owned(), Kind::Malloc)]);
        let file = Vma { inode: 7, ..vma(0x1000..0x2000, "rw-p", "/bin/a") };
        let bss = [file, vma(0x2000..0x3000, "rw-p", "")];
        assert_eq!(named(&bss)[1].1, "/bin/a (bss)");
    }

    #[test]
    fn names_of_a_jvm_take_their_places() {
        let part = |addresses, name: &str| Part {
            addresses,
            name: name.to_owned(),
            kind: Kind::Anonymous,
            of_jvm: None,
        };
        let all = overlay(
            vec![part(0..100, "a"), part(200..300, "b")],
            vec![part(50..60, "x"), part(90..250, "y")],
        );
        let all: Vec<_> = all.iter().map(|p| (p.addresses.start, p.addresses.end, p.name.as_str())).collect();
        assert_eq!(all, [(0, 50, "a"), (50, 60, "x"), (60, 90, "a"), (90, 250, "y"), (250, 300, "b")]);
    }

    #[test]
    fn the_shared_memory_of_a_server_is_named_on_both_kinds_of_pages() {
        let program = vma(0x1000..0x2000, "r-xp", "/usr/lib/postgresql/15/bin/postgres");
        for name in ["/dev/zero (deleted)", "/anon_hugepage (deleted)"] {
            let shared = Vma {
                is_shared: true,
                is_hugetlb: name.starts_with("/anon"),
                ..vma(0x20_0000..0x80_0000, "rw-s", name)
            };
            let own = database(&[program.clone(), shared.clone()]);
            let kinds: Vec<_> = own.iter().map(|part| (part.addresses.clone(), part.kind)).collect();
            assert_eq!(kinds, [(0x20_0000..0x80_0000, Kind::Database)], "{name}");
            let other = Vma { name: "/usr/bin/other".to_owned(), ..program.clone() };
            assert_eq!(database(&[other, shared]), []);
        }
    }

    #[test]
    fn a_server_may_exclude_pools_on_its_command_line() {
        let excludes = |line: &str| excludes_pool(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(excludes("postgres -D x -c huge_pages=off") && excludes("postgres --huge_pages=off"));
        assert!(!excludes("postgres -c huge_pages=off -chuge_pages=try") && !excludes("postgres -D x"));
    }
}
