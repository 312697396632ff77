//! The C library of a program, and the settings that its malloc takes.
//!
//! Sources: the System V ABI for ELF, ld.so(8), the glibc manual's chapter on tunables, jemalloc(3).

use std::path::{Path, PathBuf};

use memchr::memmem;

use crate::{
    native_endian::{u16_at, u32_at, u64_at},
    root::{ReadError, Root},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CLibrary {
    /// The GNU C library.
    Glibc {
        /// 2.36 as `(2, 36)`; `None` if unknown, which means before 2.33.
        version: Option<(u32, u32)>,
        /// The folder of its loader, relative to the root.
        dir: PathBuf,
    },
    /// musl, whose malloc has no settings.
    Musl,
    /// Statically linked: the program ignores settings for the loader and for malloc.
    Static,
    /// Another loader, by its path.
    Other(PathBuf),
}

/// A malloc in place of the C library's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// A jemalloc that the loader loads; it reads `MALLOC_CONF`.
    Jemalloc,
    /// Another library, by its name.
    Other(&'static str),
    /// A part of the program, by its name; no library can replace it.
    BuiltIn(&'static str),
}

impl Allocator {
    /// The allocator in a library with this file name.
    pub fn of_library(file: &str) -> Option<Allocator> {
        let known = [
            ("libjemalloc.", Allocator::Jemalloc),
            ("libtcmalloc", Allocator::Other("tcmalloc")),
            ("libmimalloc", Allocator::Other("mimalloc")),
        ];
        known.into_iter().find(|(name, _)| file.starts_with(name)).map(|(_, allocator)| allocator)
    }

    pub fn name(self) -> &'static str {
        match self {
            Allocator::Jemalloc => "jemalloc",
            Allocator::Other(name) | Allocator::BuiltIn(name) => name,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The C library of the program, or of its interpreter if it is a script.
    pub c_library: CLibrary,
    /// The malloc that the program is linked with, if it is known to be none of the C library's.
    pub allocator: Option<Allocator>,
    /// Whether it contains the name of a `java` launcher or of a JVM's library, as programs do that start a JVM.
    pub names_java: bool,
    /// `e_machine` of its ELF header.
    machine: u16,
}

/// Largest program or library in which a malloc or version is searched, in bytes.
const MAX_PROGRAM_BYTES: u64 = 256 << 20;
/// Maximum depth of script interpreters, as in Linux.
const MAX_INTERPRETERS: usize = 4;
/// The file name under which distributions install jemalloc.
const JEMALLOC: &str = "libjemalloc.so.2";

/// Reads the program at `path` (relative to the root).
pub fn of_program(root: &Root, path: impl AsRef<Path>) -> Result<Program, ReadError> {
    let mut path = path.as_ref().to_owned();
    for _ in 0..MAX_INTERPRETERS {
        let file = root.beginning(&path, 1 << 16)?;
        if let Some(line) = file.strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let line = String::from_utf8_lossy(line).trim().to_owned();
            let mut words = line.split_whitespace();
            let Some(interpreter) = words.next() else { break };
            path = relative(interpreter);
            continue;
        }
        let elf = Elf::parse(&file).ok_or_else(|| root.content(&path, 1, "a program", "no ELF header"))?;
        let c_library = match elf.interpreter {
            None => CLibrary::Static,
            Some(loader) => of_loader(root, &relative(&loader)),
        };
        let file = root.read_within(&path, MAX_PROGRAM_BYTES).unwrap_or_default();
        return Ok(Program {
            c_library,
            allocator: allocator_of(&file),
            names_java: names_java(&file),
            machine: elf.machine,
        });
    }
    Err(root.content(&path, 1, "a program", "a loop of script interpreters"))
}

fn allocator_of(file: &[u8]) -> Option<Allocator> {
    let libraries = Elf::parse(file).and_then(|elf| elf.libraries(file)).unwrap_or_default();
    if let Some(linked) = libraries.iter().find_map(|library| Allocator::of_library(library)) {
        return Some(linked);
    }
    // The beginning of jemalloc's messages; the magic bytes of Go's build information; a section of native images.
    let inside: [(&[u8], &'static str); 3] = [
        (b"\xff Go buildinf:", "the Go runtime's"),
        (b"\0.svm_heap\0", "a native image's (SubstrateVM)"),
        (b"<jemalloc>: ", "a jemalloc of its own"),
    ];
    let found = inside.into_iter().find(|(sign, _)| memmem::find(file, sign).is_some());
    found.map(|(_, name)| Allocator::BuiltIn(name))
}

fn names_java(file: &[u8]) -> bool {
    let names: [&[u8]; 3] = [b"bin/java", b"libjvm.so", b"libjli.so"];
    names.into_iter().any(|name| memmem::find(file, name).is_some())
}

fn relative(path: &str) -> PathBuf {
    PathBuf::from(path.trim_start_matches('/'))
}

fn of_loader(root: &Root, loader: &Path) -> CLibrary {
    let name = loader.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("ld-musl") {
        return CLibrary::Musl;
    }
    if !name.starts_with("ld-linux") && !name.starts_with("ld64.so") {
        return CLibrary::Other(Path::new("/").join(loader));
    }
    let real = root.resolve(loader).unwrap_or_else(|_| loader.to_owned());
    // Since 2.33 the loader file contains its version: `ld.so (…) stable release version 2.36.`
    let version = root.read_within(&real, MAX_PROGRAM_BYTES).ok().and_then(|file| version_in(&file));
    CLibrary::Glibc { version, dir: real.parent().map(Path::to_owned).unwrap_or_default() }
}

fn version_in(file: &[u8]) -> Option<(u32, u32)> {
    const SIGN: &[u8] = b" release version ";
    memmem::find_iter(file, SIGN).map(|at| &file[at + SIGN.len()..]).find_map(|behind| {
        let text = behind.split(|byte| !(byte.is_ascii_digit() || *byte == b'.')).next()?;
        let mut numbers = std::str::from_utf8(text).ok()?.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}

impl Program {
    /// A jemalloc that this program's loader can load, relative to the root.
    pub fn jemalloc(&self, root: &Root) -> Option<PathBuf> {
        let CLibrary::Glibc { dir, .. } = &self.c_library else { return None };
        let usual = ["usr/lib64", "usr/lib", "usr/local/lib"].map(PathBuf::from);
        // `lib/x86_64-linux-gnu` on a machine where `lib` is not a link to `usr/lib`.
        let doubled = [Path::new("usr").join(dir)];
        [dir.clone()].into_iter().chain(doubled).chain(usual).map(|dir| dir.join(JEMALLOC)).find(|file| {
            let found = root.beginning(file, 64);
            found.ok().and_then(|file| Elf::parse(&file)).is_some_and(|elf| elf.machine == self.machine)
        })
    }
}

/// The parsed parts of an ELF file.
struct Elf {
    machine: u16,
    /// `PT_INTERP`.
    interpreter: Option<String>,
    /// Whether its words have 64 bits.
    wide: bool,
    /// `PT_LOAD` and `PT_DYNAMIC`.
    segments: Vec<Segment>,
}

/// A program header.
struct Segment {
    kind: u32,
    offset: usize,
    address: usize,
    length: usize,
}

impl Elf {
    /// Parses the beginning of a file in this machine's byte order.
    fn parse(file: &[u8]) -> Option<Elf> {
        let wide = match file.get(..5)? {
            [0x7f, b'E', b'L', b'F', class] => *class == 2,
            _ => return None,
        };
        let word = |at| -> Option<usize> {
            let word = if wide { u64_at(file, at) } else { u32_at(file, at).map(u64::from) };
            word?.try_into().ok()
        };
        let machine = u16_at(file, 18)?;
        // Offsets in the file's header, and in a program header.
        let (headers, header_size, count, offset, address, length) =
            if wide { (32, 54, 56, 8, 16, 32) } else { (28, 42, 44, 4, 8, 16) };
        let (headers, header_size) = (word(headers)?, usize::from(u16_at(file, header_size)?));
        let (mut interpreter, mut segments) = (None, Vec::new());
        for n in 0..usize::from(u16_at(file, count)?) {
            let Some(at) = headers.checked_add(n * header_size) else { break };
            let Some(kind) = u32_at(file, at) else { break };
            if ![libc::PT_INTERP, libc::PT_LOAD, libc::PT_DYNAMIC].contains(&kind) {
                continue;
            }
            let (offset, address, length) = (word(at + offset)?, word(at + address)?, word(at + length)?);
            if kind == libc::PT_INTERP {
                let path = file.get(offset..offset.checked_add(length)?)?;
                interpreter = Some(String::from_utf8_lossy(path).trim_end_matches('\0').to_owned());
            } else {
                segments.push(Segment { kind, offset, address, length });
            }
        }
        Some(Elf { machine, interpreter, wide, segments })
    }

    /// The names of the libraries that the loader loads for it (`DT_NEEDED`).
    fn libraries(&self, file: &[u8]) -> Option<Vec<String>> {
        const DT_NEEDED: u64 = 1;
        const DT_STRTAB: u64 = 5;
        let dynamic = self.segments.iter().find(|segment| segment.kind == libc::PT_DYNAMIC)?;
        let table = file.get(dynamic.offset..dynamic.offset.checked_add(dynamic.length)?)?;
        let size = if self.wide { 8 } else { 4 };
        let word = |at| if self.wide { u64_at(table, at) } else { u32_at(table, at).map(u64::from) };
        let entries = (0..table.len() / (2 * size))
            .filter_map(|n| Some((word(2 * n * size)?, usize::try_from(word((2 * n + 1) * size)?).ok()?)));
        let entries: Vec<(u64, usize)> = entries.collect();
        let (_, strings) = *entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?;
        let offset_of = |segment: &Segment| {
            let inside = strings.checked_sub(segment.address).filter(|inside| *inside < segment.length)?;
            segment.offset.checked_add(inside)
        };
        let loaded = self.segments.iter().filter(|segment| segment.kind == libc::PT_LOAD);
        let strings = file.get(loaded.filter_map(offset_of).next()?..)?;
        let name = |at: usize| {
            let name = strings.get(at..)?.split(|byte| *byte == 0).next()?;
            Some(String::from_utf8_lossy(name).into_owned())
        };
        Some(entries.iter().filter(|(tag, _)| *tag == DT_NEEDED).filter_map(|(_, at)| name(*at)).collect())
    }
}

/// `theirs`, a list in the format of `GLIBC_TUNABLES`, with `ours` in place of tunables of the same names.
pub fn with_tunables(theirs: &str, ours: &[(&str, String)]) -> String {
    let is_ours = |one: &str| ours.iter().any(|(name, _)| one.split('=').next() == Some(name));
    let kept = theirs.split(':').filter(|one| !one.is_empty() && !is_ours(one)).map(str::to_owned);
    kept.chain(ours.iter().map(|(name, value)| format!("{name}={value}"))).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree;

    #[test]
    fn our_own_c_library_is_known() -> Result<(), ReadError> {
        let root = Root::live();
        let own = of_program(&root, "proc/self/exe")?;
        if cfg!(target_env = "gnu") {
            assert!(matches!(own.c_library, CLibrary::Glibc { version: Some((2, 33..)), .. }), "{own:?}");
        }
        Ok(())
    }

    #[test]
    fn the_libraries_and_the_malloc_of_a_program_are_known() -> Result<(), Box<dyn std::error::Error>> {
        let own = Root::live().read_within("proc/self/exe", MAX_PROGRAM_BYTES)?;
        let elf = Elf::parse(&own).ok_or("no ELF header")?;
        if cfg!(target_env = "gnu") {
            let libraries = elf.libraries(&own).ok_or("no libraries")?;
            assert!(libraries.iter().any(|library| library.starts_with("libc.so")), "{libraries:?}");
        }
        let mut renamed = own.clone();
        let at = memmem::find(&own, b"\0libgcc_s.so.1\0").ok_or("not linked with libgcc_s")?;
        renamed[at..at + 14].copy_from_slice(b"\0libjemalloc.s");
        assert_eq!(allocator_of(&renamed), Some(Allocator::Jemalloc));
        assert_eq!(allocator_of(b"<jemalloc>: Error"), Some(Allocator::BuiltIn("a jemalloc of its own")));
        assert_eq!(allocator_of(b"\0libjemalloc.so.2\0"), None);
        Ok(())
    }

    #[test]
    fn scripts_are_followed_and_text_is_no_program() {
        let (_dir, root) =
            tree(&[("a", "#!/b -x\n"), ("b", "text"), ("round", "#! /round"), ("empty", "#!\n")]);
        let says = |path: &str| of_program(&root, path).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(says("a").contains("/b:1: expected a program"), "{}", says("a"));
        assert!(
            says("round").contains("a loop of script interpreters") && says("empty").contains("a program")
        );
    }

    #[test]
    fn the_loaders_version_is_found() {
        let version = |text: &str| version_in(text.as_bytes());
        assert_eq!(version("x\0ld.so (Debian GLIBC 2.36-9) stable release version 2.36.\n"), Some((2, 36)));
        assert_eq!(version("a release version of it; development release version 2.41.9000."), Some((2, 41)));
        assert_eq!(version("no such words"), None);
    }

    #[test]
    fn a_jemalloc_of_the_programs_own_kind_is_found() -> Result<(), Box<dyn std::error::Error>> {
        let (dir, root) = tree(&[("lib/multi/libjemalloc.so.2", "text"), ("usr/lib/libjemalloc.so.2", "")]);
        let own = Root::live().beginning("proc/self/exe", 64)?;
        let elf = Elf::parse(&own).ok_or("no ELF header")?;
        let program = |machine| Program {
            c_library: CLibrary::Glibc { version: None, dir: "lib/multi".into() },
            allocator: None,
            names_java: false,
            machine,
        };
        assert_eq!(program(elf.machine).jemalloc(&root), None);
        std::fs::write(dir.path().join("usr/lib/libjemalloc.so.2"), &own)?;
        assert_eq!(program(elf.machine).jemalloc(&root), Some("usr/lib/libjemalloc.so.2".into()));
        assert_eq!(program(elf.machine + 1).jemalloc(&root), None);
        Ok(())
    }

    #[test]
    fn other_tunables_are_kept() {
        let ours = [("glibc.malloc.hugetlb", "1".to_owned())];
        let theirs = "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=2";
        assert_eq!(with_tunables(theirs, &ours), "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1");
        assert_eq!(with_tunables("", &ours), "glibc.malloc.hugetlb=1");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), wide in any::<bool>()) {
            let mut file = vec![0x7f, b'E', b'L', b'F', if wide { 2 } else { 1 }];
            file.extend(&bytes);
            let _ = Elf::parse(&file).and_then(|elf| elf.libraries(&file));
            let _ = version_in(&bytes);
        }
    }
}
