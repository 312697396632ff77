//! /proc/PID/smaps: the mappings of a process and their pages.
//!
//! Source: Documentation/filesystems/proc.rst of the kernel.

mod parser;

use std::{
    collections::BTreeMap,
    io::{self, Read},
    mem,
    ops::Range,
    sync::{Arc, mpsc},
    thread,
};

use crate::{
    pages::coverage::{Coverage, add_bytes},
    proc::mounts::{self, Mount, Tmpfs},
    root::{ReadError, Root},
    sys::file::patient::PatientFile,
    units::{Bytes, PageSize},
};

pub use parser::{MalformedLine, Parser};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vma {
    /// Start and end address.
    pub addresses: Range<u64>,
    /// Access permissions, for example `rw-p`.
    pub permissions: String,
    /// Offset in the mapped file, in bytes.
    pub offset: u64,
    /// Major and minor device number of the mapped file.
    pub device: (u64, u64),
    /// Inode of the mapped file; 0 for anonymous memory.
    pub inode: u64,
    /// Path or pseudo-path as printed by the kernel; empty for anonymous memory.
    pub name: String,
    /// `Rss`: resident bytes, without hugetlb pages.
    pub rss: Bytes,
    /// `Anonymous`: resident bytes that belong to no file, without hugetlb pages.
    pub anonymous: Bytes,
    /// Bytes on THP of the PMD size: anonymous, shared memory and files together.
    pub thp: Bytes,
    /// Resident bytes on hugetlb pages.
    pub hugetlb: Bytes,
    /// `KernelPageSize`: the page size of the pool for hugetlb, otherwise the base page size, even for memory
    /// on THP.
    pub kernel_page_size: Bytes,
    /// `Swap`: swapped-out bytes.
    pub swap: Bytes,
    /// `THPeligible`: whether the mapping may get THP of any size now; `None` before Linux 5.0.
    pub thp_eligible: Option<bool>,
    /// The advice on THP in `VmFlags`.
    pub advice: ThpAdvice,
    /// `VmFlags` contains `ht`.
    pub is_hugetlb: bool,
    /// `VmFlags` contains `sh`: other mappings of the same file see writes.
    pub is_shared: bool,
    /// `VmFlags` contains `lo`: locked by mlock(2).
    pub is_locked: bool,
    /// The mount of the mapped file in the process' mount namespace; `None` without a file, and for files of
    /// the kernel's internal mounts, such as memfd.
    pub mount: Option<Arc<Mount>>,
}

/// A program's advice on THP for a mapping, by `madvise(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThpAdvice {
    /// No advice.
    #[default]
    None,
    /// `MADV_HUGEPAGE`: `VmFlags` contains `hg`.
    Huge,
    /// `MADV_NOHUGEPAGE`: `VmFlags` contains `nh`.
    NoHuge,
}

/// The kind of a mapping's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// Anonymous memory of the program.
    #[default]
    Anonymous,
    /// Shared memory: memfd, SysV, shared anonymous, and files on tmpfs.
    Shared,
    /// A mapped file.
    File,
    /// Memory of the kernel, for example `[vdso]`.
    Kernel,
    /// Hugetlb pages.
    Pool,
}

/// Bytes read before they are parsed.
const PIECE_BYTES: usize = 1 << 16;
/// Maximum number of pieces queued for the parser: reading, which takes longer, should not wait for it.
const MAX_QUEUED_PIECES: usize = 128;

impl Vma {
    pub fn memory(&self) -> Memory {
        let is_shared_memory = ["/memfd:", "/SYSV", "/dev/shm/", "/dev/zero", "[anon_shmem:"];
        match self.name.as_str() {
            _ if self.is_hugetlb => Memory::Pool,
            "" | "[heap]" | "[stack]" => Memory::Anonymous,
            name if name.starts_with("[anon:") => Memory::Anonymous,
            _ if self.tmpfs().is_some() => Memory::Shared,
            _ if self.mount.is_some() => Memory::File,
            name if is_shared_memory.iter().any(|prefix| name.starts_with(prefix)) => Memory::Shared,
            name if name.starts_with('[') => Memory::Kernel,
            _ => Memory::File,
        }
    }

    /// The tmpfs of the mapped file; `None` for files of other file systems, and without a file.
    pub fn tmpfs(&self) -> Option<Tmpfs> {
        self.mount.as_ref()?.tmpfs()
    }

    /// True for the program's anonymous memory, without its shared memory.
    pub fn is_anonymous(&self) -> bool {
        self.name.is_empty() || self.name.starts_with("[heap]") || self.name.starts_with("[anon")
    }
}

/// The mappings of process `pid` (`self` for this process), in the order of their addresses.
///
/// ESRCH or ENOENT if it has exited, EACCES if we may not trace it. If it exits during the reading, the
/// kernel may return a part only, without an error.
pub fn read(root: &Root, pid: &str) -> Result<Vec<Vma>, ReadError> {
    let smaps = Smaps::open(root, pid)?;
    let (mut parser, mut piece) = (Parser::default(), Vec::new());
    loop {
        smaps.fill(&mut piece)?;
        if piece.is_empty() {
            return smaps.parsed(parser.finish()).map(|vmas| with_mounts(root, pid, vmas));
        }
        smaps.parsed(parser.feed(&piece))?;
    }
}

/// Like [`read`], with a second thread that parses during the reading: for programs with very many mappings.
pub fn read_many(root: &Root, pid: &str) -> Result<Vec<Vma>, ReadError> {
    let smaps = &Smaps::open(root, pid)?;
    let (send, receive) = mpsc::sync_channel::<Vec<u8>>(MAX_QUEUED_PIECES);
    // Buffers are reused: new ones would cause a page fault per page.
    let (give_back, returned) = mpsc::channel();
    thread::scope(|scope| {
        let parsing = scope.spawn(move || {
            let mut parser = Parser::default();
            for piece in receive {
                smaps.parsed(parser.feed(&piece))?;
                // Fails if the reader has finished.
                let _ = give_back.send(piece);
            }
            smaps.parsed(parser.finish())
        });
        loop {
            let mut piece = returned.try_recv().unwrap_or_default();
            smaps.fill(&mut piece)?;
            // The parser stops at a line that it cannot parse, and returns the error.
            if piece.is_empty() || send.send(piece).is_err() {
                break;
            }
        }
        drop(send);
        let parsed = parsing.join();
        let parsed =
            parsed.unwrap_or_else(|_| Err(smaps.failed(io::Error::other("the parser thread panicked"))));
        parsed.map(|vmas| with_mounts(root, pid, vmas))
    })
}

/// Adds the mounts of the mapped files. Of several mounts of one file system, the last one counts, which is the
/// visible one if they have the same mount point.
fn with_mounts(root: &Root, pid: &str, mut vmas: Vec<Vma>) -> Vec<Vma> {
    let mounts = mounts::of_process(root, pid).into_iter();
    let mounts: BTreeMap<(u64, u64), Arc<Mount>> =
        mounts.map(|mount| (mount.device, Arc::new(mount))).collect();
    for vma in vmas.iter_mut().filter(|vma| vma.inode != 0) {
        vma.mount = mounts.get(&vma.device).cloned();
    }
    vmas
}

/// The addresses of a mapping, and whether it maps a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmaRange {
    pub addresses: Range<u64>,
    /// True if the mapping has an inode, as shared memory does, too.
    pub of_file: bool,
}

impl From<&Vma> for VmaRange {
    fn from(vma: &Vma) -> VmaRange {
        VmaRange { addresses: vma.addresses.clone(), of_file: vma.inode != 0 }
    }
}

/// The open smaps file of a process.
struct Smaps<'a> {
    root: &'a Root,
    path: String,
    file: PatientFile,
}

impl Smaps<'_> {
    fn open<'a>(root: &'a Root, pid: &str) -> Result<Smaps<'a>, ReadError> {
        let path = format!("proc/{pid}/smaps");
        Ok(Smaps { root, file: root.open_patiently(&path)?, path })
    }

    /// Replaces `piece` by the next piece of the file; empty at the end.
    fn fill(&self, piece: &mut Vec<u8>) -> Result<(), ReadError> {
        let mut empty = mem::take(piece);
        empty.clear();
        // A program without memory gets an error: a failed allocation would end it.
        let reserved = empty.try_reserve(PIECE_BYTES);
        reserved.map_err(|_| self.failed(io::ErrorKind::OutOfMemory.into()))?;
        let filled = self.file.with(move |file| {
            file.take(PIECE_BYTES as u64).read_to_end(&mut empty)?;
            Ok(empty)
        });
        *piece = filled.map_err(|source| self.failed(source))?;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> ReadError {
        ReadError::Io { path: self.root.path(&self.path), source }
    }

    fn parsed<T>(&self, parsed: Result<T, MalformedLine>) -> Result<T, ReadError> {
        parsed.map_err(|(line, found)| {
            self.root.content(&self.path, line, "a mapping or one of its counters", &found)
        })
    }
}

/// Parses smaps; the error is the number and text of the first line that cannot be parsed.
pub fn parse(text: &str) -> Result<Vec<Vma>, MalformedLine> {
    let mut parser = Parser::default();
    parser.feed(text.as_bytes())?;
    parser.finish()
}

/// The coverage of several mappings together; `pmd_size` is the PMD size of THP.
pub fn coverage<'a>(vmas: impl IntoIterator<Item = &'a Vma>, pmd_size: Option<PageSize>) -> Coverage {
    let mut seen = Coverage::none("/proc/PID/smaps");
    for vma in vmas {
        seen.resident += vma.rss + vma.hugetlb;
        if let Some(size) = pmd_size {
            add_bytes(&mut seen.huge, size, vma.thp);
        }
        if let Ok(size) = PageSize::new(vma.kernel_page_size) {
            add_bytes(&mut seen.huge, size, vma.hugetlb);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
c0000000-100000000 rw-p 00000000 00:0f 1052                              /anon_hugepage (deleted)
Size:            1048576 kB
KernelPageSize:     2048 kB
MMUPageSize:        2048 kB
Rss:                   0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:  1046528 kB
VmFlags: rd wr mr mw me de ht sd
7f0000000000-7f0040000000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
Rss:              524288 kB
Anonymous:        524288 kB
AnonHugePages:    262144 kB
Private_Hugetlb:       0 kB
THPeligible:           1
VmFlags: rd wr mr mw me ac sd hg
7ffc1000-7ffc2000 rw-p 00000000 00:00 0                          /dev/shm/a name: with\\012 everything
Rss:                   4 kB
";

    #[test]
    fn hugetlb_and_thp_are_distinguished() -> Result<(), Box<dyn Error>> {
        let vmas = parse(TEXT).map_err(|(line, _)| line.to_string())?;
        assert_eq!(vmas.len(), 3);
        assert_eq!(vmas[2].name, "/dev/shm/a name: with\\012 everything");
        assert!(vmas[0].is_hugetlb && !vmas[1].is_hugetlb);
        let (two, pmd) = ("2m".parse()?, "2m".parse()?);
        let heap = coverage(&vmas[..1], Some(pmd));
        assert_eq!(heap.resident, Bytes::from_kib(1_046_528));
        assert_eq!(heap.share(), Some(1.0));
        assert_eq!(heap.huge.get(&two), Some(&Bytes::from_kib(1_046_528)));
        assert_eq!(coverage(&vmas[1..2], Some(pmd)).share(), Some(0.5));
        Ok(())
    }

    #[test]
    fn an_unreadable_line_is_named() {
        assert_eq!(parse("Rss: 4 kB\n"), Err((1, "Rss: 4 kB".to_owned())));
        assert!(parse("c0-d0 rw-p 0 0:0 0\nRss: lots\n").is_err_and(|(line, _)| line == 2));
    }

    #[test]
    fn what_a_process_or_tree_can_lengthen_is_limited() -> Result<(), Box<dyn Error>> {
        let named = |length: usize| parse(&format!("c0-d0 rw-p 0 0:0 9 /{}\n", "x".repeat(length)));
        let name = |length| named(length).map(|vmas| vmas[0].name.len()).map_err(|(line, _)| line);
        assert_eq!((name(511), name(4096)), (Ok(512), Ok(512 + "…".len())));
        let mut parser = Parser::default();
        let endless = (0..10).try_for_each(|_| parser.feed(&[b'x'; 4096]));
        assert!(endless.is_err_and(|(line, found)| line == 1 && found.len() < 1000));
        assert!(parse(&format!("c0-d0 {} 0 0:0 0\n", "r".repeat(9))).is_err());
        Ok(())
    }

    #[test]
    fn the_fields_for_the_reasons_are_read() -> Result<(), Box<dyn Error>> {
        let vmas = parse(TEXT).map_err(|(line, _)| line.to_string())?;
        assert_eq!((vmas[0].device, vmas[0].inode, vmas[0].offset), ((0, 15), 1052, 0));
        assert_eq!((vmas[1].advice, vmas[1].thp_eligible), (ThpAdvice::Huge, Some(true)));
        assert_eq!(
            (vmas[2].advice, vmas[2].thp_eligible, vmas[2].swap),
            (ThpAdvice::None, None, Bytes::ZERO)
        );
        Ok(())
    }

    #[test]
    fn predicted_lines_are_read_like_the_first_ones() -> Result<(), Box<dyn Error>> {
        // The kernel's format, with a value wider than its column, and a missing counter.
        let block = |start: u64, rss: u64, more: &str| {
            format!(
                "{start:x}-{:x} rw-p 00000000 00:00 0 \nSize:           {:8} kB\nRss:            {rss:8} kB\n\
                 {more}AnonHugePages:  {:8} kB\nTHPeligible:    {:8}\nVmFlags: rd wr hg \n",
                start + 0x1000,
                4,
                0,
                1
            )
        };
        let swap = "Swap:                  8 kB\n";
        let text = [block(0x1000, 4, swap), block(0x2000, 123_456_789_012, swap), block(0x3000, 12, "")];
        let text = text.concat() + &block(0x4000, 16, swap);
        let vmas = parse(&text).map_err(|(line, text)| format!("{line}: {text}"))?;
        let read: Vec<_> = vmas.iter().map(|vma| (vma.rss.0 >> 10, vma.swap.0 >> 10)).collect();
        assert_eq!(read, [(4, 8), (123_456_789_012, 8), (12, 0), (16, 8)]);
        assert!(vmas.iter().all(|vma| vma.advice == ThpAdvice::Huge && vma.thp_eligible == Some(true)));
        Ok(())
    }

    #[test]
    fn our_own_is_readable() -> Result<(), Box<dyn Error>> {
        for vmas in [read(&Root::live(), "self")?, read_many(&Root::live(), "self")?] {
            assert!(vmas.iter().any(|vma| vma.name == "[stack]"));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "(.|\n)*") {
            let _ = parse(&text);
        }

        #[test]
        fn pieces_give_the_same_as_the_whole(cut in 0..TEXT.len()) {
            let mut parser = Parser::default();
            let (first, rest) = TEXT.as_bytes().split_at(cut);
            let fed = [first, &rest[..1], &rest[1..]].into_iter().try_for_each(|piece| parser.feed(piece));
            let pieces = fed.and_then(|()| parser.finish());
            prop_assert_eq!(pieces, parse(TEXT));
        }

        #[test]
        fn mangled_text_never_panics(cut in 0..TEXT.len(), junk in ".{0,20}") {
            let _ = parse(&format!("{}{junk}{}", &TEXT[..cut], &TEXT[cut..]));
        }
    }
}
