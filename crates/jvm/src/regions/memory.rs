//! Reads the memory of another process, whose content may be hostile.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs::File,
    io,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use hugewise_linux::{
    hugepages::base_page,
    proc::smaps::Vma,
    root::Root,
    sys::{
        file::{self, inside},
        remote_memory,
    },
};

/// Memory that can be read by address.
pub(super) trait Memory {
    /// Fills `into` from `address`; `None` if not all of it can be read.
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()>;

    /// Why the last read at `address` failed, as far as known.
    fn reason(&self, address: u64) -> String {
        format!("the memory at {address:#x} could not be read")
    }
}

impl dyn Memory + '_ {
    pub(super) fn u64(&self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_ne_bytes)
    }

    pub(super) fn u32(&self, address: u64) -> Option<u32> {
        self.bytes(address).map(u32::from_ne_bytes)
    }

    pub(super) fn byte(&self, address: u64) -> Option<u8> {
        self.bytes(address).map(u8::from_ne_bytes)
    }

    fn bytes<const COUNT: usize>(&self, address: u64) -> Option<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        self.read(address, &mut bytes)?;
        Some(bytes)
    }

    /// Words from `address` on, in one read; `None` if not all of them can be read.
    pub(super) fn words(&self, address: u64, count: usize) -> Option<Vec<u64>> {
        let mut bytes = vec![0; count.min(MOST_WORDS) * 8];
        self.read(address, &mut bytes)?;
        let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
        Some(words.map(u64::from_ne_bytes).collect())
    }

    /// Printable ASCII text that ends with a zero byte, of less than 256 bytes.
    pub(super) fn text(&self, address: u64) -> Option<String> {
        let mut text = Vec::new();
        // In pieces that do not cross a page boundary: the next page may not be readable.
        let mut at = address;
        while text.len() < 256 {
            let mut piece = [0; 64];
            let piece = &mut piece[..64 - (at % 64) as usize];
            self.read(at, piece)?;
            at = at.checked_add(piece.len() as u64)?;
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(&piece[..end]);
                    let printable = text.iter().all(|byte| (b' '..=b'~').contains(byte));
                    return String::from_utf8(text).ok().filter(|_| printable);
                }
                None => text.extend_from_slice(piece),
            }
        }
        None
    }
}

/// Maximum size of a read, in words: 64 MiB.
const MOST_WORDS: usize = 8 << 20;

/// Running process. Reading faults no page in: pages that are not present count as zero, or are read from
/// their file.
pub(super) struct ProcessMemory<'a> {
    pid: u32,
    vmas: &'a [Vma],
    page: u64,
    /// `/proc/PID/pagemap`, for the presence of pages.
    pagemap: io::Result<File>,
    /// Files of mappings that were read, by start address of the mapping.
    files: RefCell<BTreeMap<u64, Option<File>>>,
    /// Pages of libraries that were read, by page number: their tables are read word by word.
    library: RefCell<HashMap<u64, Option<Vec<u8>>>>,
}

/// Bits of an entry of `/proc/PID/pagemap`: `Documentation/admin-guide/mm/pagemap.rst`.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;

impl<'a> ProcessMemory<'a> {
    pub(super) fn of(root: &Root, pid: u32, vmas: &'a [Vma]) -> ProcessMemory<'a> {
        ProcessMemory {
            pid,
            vmas,
            page: base_page::read(root).known().map_or(4096, |page| page.bytes().0),
            pagemap: root.open(format!("proc/{pid}/pagemap")).map_err(io::Error::from),
            files: RefCell::default(),
            library: RefCell::default(),
        }
    }

    /// Reads page by page.
    fn read_pages(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let pagemap = self.pagemap.as_ref().ok()?;
        let end = address.checked_add(into.len() as u64)?;
        let first = address / self.page;
        let mut entries = vec![0; usize::try_from(end.div_ceil(self.page) - first).ok()? * 8];
        pagemap.read_exact_at(&mut entries, first.checked_mul(8)?).ok()?;
        let mut left = into;
        let mut at = address;
        for (page, entry) in (first..).zip(entries.chunks_exact(8)) {
            let length = ((page + 1) * self.page).min(end) - at;
            let (piece, rest) = left.split_at_mut(usize::try_from(length).ok()?);
            self.read_piece(at, piece, u64::from_ne_bytes(entry.try_into().ok()?))?;
            (left, at) = (rest, at + length);
        }
        Some(())
    }

    /// Reads a piece inside one page.
    fn read_piece(&self, address: u64, into: &mut [u8], entry: u64) -> Option<()> {
        if entry & PRESENT != 0 {
            return (remote_memory::read(self.pid, address, into).ok()? == into.len()).then_some(());
        }
        let vma = self.vma(address)?;
        // A read would swap the page in.
        if entry & SWAPPED != 0 || address.checked_add(into.len() as u64)? > vma.addresses.end {
            return None;
        }
        if vma.inode == 0 {
            into.fill(0);
            return Some(());
        }
        let mut files = self.files.borrow_mut();
        let file = files.entry(vma.addresses.start).or_insert_with(|| self.open(vma));
        file.as_ref()?.read_exact_at(into, vma.offset.checked_add(address - vma.addresses.start)?).ok()
    }

    /// Reads from one page of a private file mapping. Only its variables can change; they keep the value of
    /// the first read.
    fn read_library(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let number = address / self.page;
        let from = usize::try_from(address % self.page).ok()?;
        let to = from.checked_add(into.len()).filter(|to| *to as u64 <= self.page)?;
        let mut pages = self.library.borrow_mut();
        let page = pages.entry(number).or_insert_with(|| self.library_page(number));
        into.copy_from_slice(page.as_ref()?.get(from..to)?);
        Some(())
    }

    fn library_page(&self, number: u64) -> Option<Vec<u8>> {
        let address = number.checked_mul(self.page)?;
        let vma = self.vma(address)?;
        if vma.inode == 0 || !vma.permissions.ends_with('p') {
            return None;
        }
        let mut page = vec![0; usize::try_from(self.page).ok()?];
        self.read_pages(address, &mut page)?;
        Some(page)
    }

    fn vma(&self, address: u64) -> Option<&'a Vma> {
        let at = self.vmas.partition_point(|vma| vma.addresses.end <= address);
        self.vmas.get(at).filter(|vma| vma.addresses.contains(&address))
    }

    /// File of a mapping, verified by its inode: the process may have put another file there.
    fn open(&self, vma: &Vma) -> Option<File> {
        let Range { start, end } = vma.addresses;
        let exactly = PathBuf::from(format!("/proc/{}/map_files/{start:x}-{end:x}", self.pid));
        // Checked before it is opened: opening a device has effects of its own.
        let exactly = exactly.metadata().and_then(|found| match found.is_file() {
            true => file::open(&exactly),
            false => Err(io::ErrorKind::InvalidInput.into()),
        });
        let by_name = |_| inside::open(Path::new(&format!("/proc/{}/root", self.pid)), Path::new(&vma.name));
        let file = exactly.or_else(by_name).ok()?;
        file.metadata().is_ok_and(|found| found.ino() == vma.inode).then_some(file)
    }
}

impl Memory for ProcessMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        self.read_library(address, into).or_else(|| self.read_pages(address, into))
    }

    fn reason(&self, address: u64) -> String {
        let error = match &self.pagemap {
            Err(error) => error.to_string(),
            Ok(_) => match remote_memory::read(self.pid, address, &mut [0; 8]) {
                Ok(_) => return format!("process {} changed while it was read", self.pid),
                Err(error) => error.to_string(),
            },
        };
        format!("reading the memory of process {}: {error}; it needs root or CAP_SYS_PTRACE", self.pid)
    }
}

/// Memory for tests.
#[cfg(test)]
pub(super) mod fake {
    use std::collections::BTreeMap;

    use super::Memory;

    /// Pieces of memory by start address.
    #[derive(Default)]
    pub(in crate::regions) struct FakeMemory(pub BTreeMap<u64, Vec<u8>>);

    impl FakeMemory {
        pub(in crate::regions) fn words(&mut self, address: u64, words: &[u64]) {
            self.0.insert(address, words.iter().flat_map(|word| word.to_ne_bytes()).collect());
        }
    }

    impl Memory for FakeMemory {
        fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
            let (start, piece) = self.0.range(..=address).next_back()?;
            let from = usize::try_from(address - start).ok()?;
            into.copy_from_slice(piece.get(from..from.checked_add(into.len())?)?);
            Some(())
        }
    }
}
