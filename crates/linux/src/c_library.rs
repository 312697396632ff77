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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The C library of the program, or of its interpreter if it is a script.
    pub c_library: CLibrary,
    /// `e_machine` of its ELF header.
    machine: u16,
}

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
        return Ok(Program { c_library, machine: elf.machine });
    }
    Err(root.content(&path, 1, "a program", "a loop of script interpreters"))
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
    let version = root.read_bytes(&real).ok().and_then(|file| version_in(&file));
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
        let (headers, header_size, count, offset, length) =
            if wide { (32, 54, 56, 8, 32) } else { (28, 42, 44, 4, 16) };
        let (headers, header_size) = (word(headers)?, usize::from(u16_at(file, header_size)?));
        let mut interpreter = None;
        for n in 0..usize::from(u16_at(file, count)?) {
            let Some(at) = headers.checked_add(n * header_size) else { break };
            if u32_at(file, at) != Some(libc::PT_INTERP) {
                continue;
            }
            let (offset, length) = (word(at + offset)?, word(at + length)?);
            let path = file.get(offset..offset.checked_add(length)?)?;
            interpreter = Some(String::from_utf8_lossy(path).trim_end_matches('\0').to_owned());
        }
        Some(Elf { machine, interpreter })
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
            let _ = Elf::parse(&file);
            let _ = version_in(&bytes);
        }
    }
}
