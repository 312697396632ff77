//! The allocator or runtime that manages the anonymous memory of a process, if it is not the C library's malloc.

use std::{fs::File, io, time::Duration};

use hugewise_jvm::environment::Environment;
use hugewise_linux::{
    action::Action,
    elf_sections::{self, Section},
    proc::smaps::Vma,
    root::Root,
    sys::aside::{self, Deadline},
};
use memchr::memmem;
use serde::{Deserialize, Serialize};

/// Longest reading of a program's file, which may be on a file system that hangs.
const READING_LIMIT: Duration = Duration::from_secs(1);
/// Largest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 16;
/// Longest name of an environment variable of a jemalloc, in bytes.
const MAX_VARIABLE_BYTES: usize = 64;

/// An allocator in place of the C library's malloc, or a runtime with an allocator of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// jemalloc, and the environment variable that it reads.
    Jemalloc {
        variable: String,
    },
    Tcmalloc,
    Mimalloc,
    Snmalloc,
    Go,
    /// Node.js or a browser.
    V8,
    /// A program made by GraalVM's native-image.
    NativeImage,
    /// Erlang's virtual machine.
    Beam,
    DotNet,
}

/// Marks in the file of a program.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Marks {
    go: bool,
    native_image: bool,
    v8: bool,
    /// The environment variable of a jemalloc in the program.
    jemalloc: Option<String>,
}

impl Runtime {
    /// Finds it by the libraries that the process maps, the names of its memory, and marks in its program. A library in
    /// place of malloc manages little memory of a program that has a heap of its own.
    pub fn find(root: &Root, pid: u32, vmas: &[Vma]) -> Option<Runtime> {
        let named = vmas.iter().find_map(of_name);
        if named.as_ref().is_some_and(|runtime| !runtime.replaces_malloc()) {
            return named;
        }
        let marked = || {
            let limit = Deadline::of_reading(READING_LIMIT);
            let is_searched = root.is_live() && !hugewise_jvm::regions::has_libjvm(vmas);
            let file = is_searched.then(|| root.path(format!("proc/{pid}/exe")))?;
            let read = || {
                let file = hugewise_linux::sys::file::open(&file)?;
                serde_json::to_vec(&Marks::of(&file)).map_err(io::Error::other)
            };
            let answer = aside::ask(&[], &limit, MAX_ANSWER_BYTES, read).ok()?;
            serde_json::from_slice::<Marks>(&answer).ok()?.runtime()
        };
        marked().filter(|runtime| named.is_none() || !runtime.replaces_malloc()).or(named)
    }

    pub fn name(&self) -> &'static str {
        match self {
            Runtime::Jemalloc { .. } => "jemalloc",
            Runtime::Tcmalloc => "tcmalloc",
            Runtime::Mimalloc => "mimalloc",
            Runtime::Snmalloc => "snmalloc",
            Runtime::Go => "Go",
            Runtime::V8 => "V8",
            Runtime::NativeImage => "SubstrateVM",
            Runtime::Beam => "BEAM",
            Runtime::DotNet => ".NET",
        }
    }

    /// Whether malloc of the process is this allocator.
    pub fn replaces_malloc(&self) -> bool {
        matches!(self, Runtime::Jemalloc { .. } | Runtime::Tcmalloc | Runtime::Mimalloc | Runtime::Snmalloc)
    }

    /// The action that keeps it from purging unused memory; `None` if it has none, or the process has it already.
    pub fn no_purge(&self, environment: &Environment) -> Option<Action> {
        let with = |setting: &str| {
            Action::new(format!(
                "Start it with {setting}{}: {} then keeps unused memory instead of purging it, so the resident memory stays \
                 at its peak",
                environment.doubt(),
                self.name()
            ))
        };
        let set = |name: &str, value: &str| {
            let has = environment.get(name) == Some(value);
            (!has).then(|| with(&format!("{name}={value}")))
        };
        match self {
            Runtime::Jemalloc { variable } => {
                let has = environment.options(variable).any(|option| option == "dirty_decay_ms:-1");
                (!has).then(|| with(&format!("dirty_decay_ms:-1 in {variable}")))
            }
            Runtime::Tcmalloc => set("TCMALLOC_RELEASE_RATE", "0"),
            Runtime::Mimalloc => set("MIMALLOC_PURGE_DELAY", "-1"),
            _ => None,
        }
    }

    /// The action that makes it request huge pages; `None` if it has none, or the process has it already.
    pub fn request_huge(&self, environment: &Environment) -> Option<Action> {
        match self {
            Runtime::Jemalloc { variable } => {
                let has = environment.options(variable).any(|option| option == "thp:always");
                (!has).then(|| {
                    Action::new(format!("Start it with thp:always in {variable}{}", environment.doubt()))
                })
            }
            _ => None,
        }
    }
}

impl Marks {
    fn of(file: &File) -> Marks {
        let sections = elf_sections::sections(file);
        let section = |name: &str| sections.iter().find(|section| section.name == name);
        let content = |section: Option<&Section>| section.and_then(|one| one.read(file)).unwrap_or_default();
        let symbols = content(section(".dynstr"));
        Marks {
            go: section(".go.buildinfo").or(section(".note.go.buildid")).is_some(),
            native_image: section(".svm_heap").is_some(),
            v8: memmem::find(&symbols, b"_ZN2v87Isolate").is_some(),
            jemalloc: jemalloc_variable(&content(section(".rodata"))),
        }
    }

    fn runtime(self) -> Option<Runtime> {
        let marked =
            [(self.go, Runtime::Go), (self.native_image, Runtime::NativeImage), (self.v8, Runtime::V8)];
        let marked = marked.into_iter().find(|(is, _)| *is).map(|(_, runtime)| runtime);
        marked.or_else(|| self.jemalloc.map(|variable| Runtime::Jemalloc { variable }))
    }
}

/// The runtime of a library, program or named memory.
fn of_name(vma: &Vma) -> Option<Runtime> {
    if let Some(name) = vma.name.strip_prefix("[anon:") {
        let name = name.trim();
        let known = [("v8", Runtime::V8), ("partition_alloc", Runtime::V8), ("Go: ", Runtime::Go)];
        return known.into_iter().find(|(start, _)| name.starts_with(start)).map(|(_, runtime)| runtime);
    }
    let file = vma.name.rsplit_once('/').filter(|_| vma.permissions.contains('x'))?.1;
    let jemalloc = Runtime::Jemalloc { variable: "MALLOC_CONF".to_owned() };
    let known = [
        ("libjemalloc.", jemalloc),
        ("libtcmalloc", Runtime::Tcmalloc),
        ("libmimalloc", Runtime::Mimalloc),
        ("libsnmalloc", Runtime::Snmalloc),
        ("libcoreclr.so", Runtime::DotNet),
        ("beam.", Runtime::Beam),
        ("libnode.so", Runtime::V8),
        ("chrome", Runtime::V8),
        ("chromium", Runtime::V8),
        ("electron", Runtime::V8),
    ];
    known.into_iter().find(|(start, _)| file.starts_with(start)).map(|(_, runtime)| runtime)
}

/// The variable that a jemalloc in a program reads: `MALLOC_CONF` behind the prefix of its functions.
fn jemalloc_variable(constants: &[u8]) -> Option<String> {
    memmem::find(constants, b"<jemalloc>: ")?;
    let ends = memmem::find_iter(constants, b"MALLOC_CONF\0").map(|at| at + "MALLOC_CONF".len());
    let mut variables = ends.filter_map(|end| {
        let before = constants.get(end.saturating_sub(MAX_VARIABLE_BYTES)..end)?;
        let name = before.rsplit(|byte| *byte == 0).next()?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        name.chars().all(|one| one.is_ascii_uppercase() || one == '_').then_some(name)
    });
    Some(variables.next().unwrap_or_else(|| "MALLOC_CONF".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(permissions: &str, name: &str) -> Vma {
        Vma { permissions: permissions.to_owned(), name: name.to_owned(), ..Vma::default() }
    }

    #[test]
    fn libraries_programs_and_names_of_memory_are_known() {
        for (name, expected) in [
            ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", Some("jemalloc")),
            ("/usr/lib/erlang/erts-13.1.5/bin/beam.smp", Some("BEAM")),
            ("/usr/lib/libtcmalloc_minimal.so.4.5.9", Some("tcmalloc")),
            ("/usr/lib/chromium/chromium", Some("V8")),
            ("/usr/lib/libc.so.6", None),
        ] {
            assert_eq!(of_name(&vma("r-xp", name)).map(|found| found.name()), expected, "{name}");
            assert_eq!(of_name(&vma("r--p", name)), None, "{name}");
        }
        assert_eq!(of_name(&vma("rw-p", "[anon: Go: heap]")), Some(Runtime::Go));
        assert_eq!(of_name(&vma("rw-p", "[anon:stack]")), None);
    }

    #[test]
    fn the_variable_of_a_jemalloc_has_the_prefix_of_its_functions() {
        let of = |text: &[u8]| jemalloc_variable(text);
        assert_eq!(of(b"\0<jemalloc>: %s\0_RJEM_MALLOC_CONF\0").as_deref(), Some("_RJEM_MALLOC_CONF"));
        assert_eq!(of(b"\0<jemalloc>: %s\0/etc/malloc.conf\0").as_deref(), Some("MALLOC_CONF"));
        assert_eq!(of(b"\0MALLOC_CONF\0"), None);
    }

    #[test]
    fn what_the_process_has_is_not_advised() {
        let jemalloc = Runtime::Jemalloc { variable: "MALLOC_CONF".to_owned() };
        let advised = |value: &str| {
            let environment = Environment::parse(format!("MALLOC_CONF={value}").as_bytes());
            [jemalloc.no_purge(&environment), jemalloc.request_huge(&environment)]
                .map(|action| action.map(|action| action.change))
        };
        let [keep, huge] = advised("dirty_decay_ms:5000,background_thread:true");
        assert!(keep.is_some_and(|says| says.contains("dirty_decay_ms:-1 in MALLOC_CONF:")));
        assert!(huge.is_some_and(|says| says.ends_with("thp:always in MALLOC_CONF")));
        assert_eq!(advised("thp:always,dirty_decay_ms:-1"), [None, None]);
        // A program that writes its title over its environment.
        let unknown = jemalloc.request_huge(&Environment::parse(b"redis-server *:6379\0\0"));
        assert!(unknown.is_some_and(|action| action.change.ends_with("unless it has that already")));
    }
}
