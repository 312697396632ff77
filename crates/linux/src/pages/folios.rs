//! Folios that a process maps by base page table entries.
//!
//! smaps reports huge page table entries. Folios of other sizes (mTHP, and large folios of files) are mapped
//! by base entries, and so are whole THPs whose PMD entry was split: only /proc/PID/pagemap with
//! /proc/kpageflags distinguishes them from single pages.

use std::{fs::File, ops::Range, os::unix::fs::FileExt};

use super::frames::{FRAME, PRESENT};
use crate::{
    hugepages::{
        movable_blocks::{self, KPAGEFLAGS},
        page_sizes::PageSizes,
        thp,
    },
    native_endian::u64_at,
    proc::smaps::VmaRange,
    reading::Reason,
    root::{ReadError, Root},
    sys::{file::patient::PatientFile, pagemap},
    units::{Bytes, PageSize},
};

// Bits of `include/uapi/linux/kernel-page-flags.h`.
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;
const THP: u64 = 1 << 22;

/// Words of 8 bytes read at once from pagemap: page tables of half a gibibyte with base pages of 4 KiB.
/// Whole, aligned folios never cross the border of such a block.
const WINDOW_WORDS: u64 = 1 << 17;
/// Largest gap, in words, that is read instead of skipped by another system call.
const MAX_GAP_WORDS: u64 = 32;
/// Number of page frames per lookup.
const BATCH_PAGES: u64 = 1 << 18;

/// Addresses whose pages belong to large folios and are mapped by base page table entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolioRange {
    pub addresses: Range<u64>,
    pub of: Folio,
}

/// The folio that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folio {
    /// The whole folio is mapped here contiguously, at an address that is a multiple of its size.
    Whole(PageSize),
    /// Only a part of the folio is mapped here, or its address is not a multiple of its size.
    Part,
}

/// The folios to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolioSelection {
    /// Whole folios. Ranges that cannot contain one are skipped, so [`Folio::Part`] is incomplete.
    Whole,
    /// Whole folios and all parts of folios.
    All,
}

/// The pieces of process `pid` that belong to large folios, sorted by address.
///
/// `places` are its mappings, sorted by address. Needs CAP_SYS_ADMIN, and for mappings of at least the PMD
/// size the ioctl PAGEMAP_SCAN (Linux 6.7).
pub fn read(
    root: &Root,
    pid: u32,
    places: impl Iterator<Item = VmaRange>,
    sizes: &PageSizes,
    wanted: FolioSelection,
) -> Result<Vec<FolioRange>, Reason> {
    let failed = |error: ReadError| {
        let need = if error.is_denied() { "folio sizes need CAP_SYS_ADMIN: " } else { "" };
        Reason::new(format!("{need}{error}"))
    };
    let flags = root.open(KPAGEFLAGS).map_err(failed)?;
    let pagemap_path = format!("proc/{pid}/pagemap");
    let pagemap = root.open_patiently(&pagemap_path).map_err(failed)?;
    let smallest = thp::smallest_anonymous_folio(root);
    let pages = |size: PageSize| 1u64 << size.log2().saturating_sub(sizes.base.log2());
    let mappings = places.filter_map(|place| {
        let least = match smallest {
            _ if place.of_file => MIN_FILE_FOLIO_PAGES,
            // The machine has no large anonymous folio.
            Some(None) => return None,
            Some(Some(size)) => pages(size),
            None => MIN_ANONYMOUS_FOLIO_PAGES,
        };
        let least = if wanted == FolioSelection::All { 1 } else { least };
        let length = (place.addresses.end - place.addresses.start) >> sizes.base.log2();
        // The vsyscall page has a kernel address.
        let is_ours = place.addresses.end <= u64::MAX >> 1;
        (is_ours && length >= least).then_some(Mapping { addresses: place.addresses, least })
    });
    let mappings: Vec<Mapping> = mappings.collect();
    let mut small = Vec::new();
    for Mapping { addresses, .. } in &mappings {
        // Mappings below the PMD size have no huge entry; querying each of them would take longer.
        if sizes.thp.is_some_and(|pmd| addresses.end - addresses.start < pmd.bytes().0) {
            small.push(addresses.clone());
            continue;
        }
        let large = addresses.clone();
        let present = pagemap.with(move |file| pagemap::present_by_base_entries(file, large));
        let present = present.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTTY) => {
                Reason::new("folio sizes need a kernel that knows PAGEMAP_SCAN (Linux 6.7)")
            }
            _ => Reason::new(format!("PAGEMAP_SCAN of {}: {error}", root.path(&pagemap_path).display())),
        })?;
        small.extend(present.into_iter().map(|mapped| mapped.addresses));
    }
    let mut reader = Reader { pagemap, flags, base: sizes.base, mappings: &mappings, pieces: Vec::new() };
    reader.read(&small)?;
    Ok(reader.pieces)
}

/// A mapping to search.
struct Mapping {
    addresses: Range<u64>,
    /// Smallest folio in base pages.
    least: u64,
}

/// Smallest large folio of the page cache, in base pages.
const MIN_FILE_FOLIO_PAGES: u64 = 2;
/// Smallest large anonymous folio, in base pages: the third page holds the list of folios to split.
const MIN_ANONYMOUS_FOLIO_PAGES: u64 = 4;

/// A range of one mapping with contiguous addresses and contiguous page frames.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Number of the first virtual page.
    page: u64,
    /// Number of the first page frame.
    frame: u64,
    length: u64,
    /// Smallest folio of its mapping, in base pages.
    least: u64,
}

impl Run {
    /// True if the run can contain a whole, aligned folio of the smallest size, which is a power of two.
    fn may_contain_folio(&self) -> bool {
        let before = self.page.next_multiple_of(self.least) - self.page;
        before + self.least <= self.length && (self.frame + before) % self.least == 0
    }
}

struct Reader<'a> {
    pagemap: PatientFile,
    flags: File,
    base: PageSize,
    mappings: &'a [Mapping],
    pieces: Vec<FolioRange>,
}

impl Reader<'_> {
    fn read(&mut self, small: &[Range<u64>]) -> Result<(), Reason> {
        let mut runs = Runs::default();
        let (mut words, mut mapping) = (Vec::new(), 0);
        let shift = self.base.log2();
        let pages = |addresses: &Range<u64>| addresses.start >> shift..addresses.end >> shift;
        // Mappings of a running process may overlap if they change during the reading: each page counts once.
        let mut done = 0;
        let apart = small.iter().filter_map(|addresses| {
            let Range { start, end } = pages(addresses);
            let rest = start.max(done)..end;
            done = done.max(end);
            (rest.start < rest.end).then_some(rest)
        });
        let mut small = apart.peekable();
        let mut next = small.next();
        while let Some(first) = next.take() {
            // One read for ranges that are close together.
            let border = (first.start / WINDOW_WORDS + 1) * WINDOW_WORDS;
            let mut inside = Vec::new();
            inside.push(first.start..first.end.min(border));
            let mut end = first.end;
            while let Some(more) =
                small.next_if(|more| more.start < border && more.start - end <= MAX_GAP_WORDS)
            {
                inside.push(more.start..more.end.min(border));
                end = more.end;
            }
            next = if end > border { Some(border..end) } else { small.next() };
            let from = first.start;
            words.resize((end.min(border) - from) as usize * 8, 0);
            let filled = self.pagemap.with(move |file| {
                let got = movable_blocks::fill(&mut words, |rest, got| file.read_at(rest, from * 8 + got))?;
                Ok((words, got))
            });
            let got;
            (words, got) = filled
                .map_err(|error| Reason::new(format!("/proc/PID/pagemap could not be read: {error}")))?;
            for page in inside.into_iter().flatten() {
                let word = word(&words[..got], (page - from) as usize);
                if word & PRESENT == 0 {
                    continue; // The page was released since.
                }
                if word & FRAME == 0 {
                    return Reason::err(
                        "folio sizes need CAP_SYS_ADMIN: /proc/PID/pagemap hides page frames",
                    );
                }
                let address = page * self.base.bytes().0;
                let before = mapping;
                while self.mappings.get(mapping).is_some_and(|m| m.addresses.end <= address) {
                    mapping += 1;
                }
                let least = self.mappings.get(mapping).map_or(1, |mapping| mapping.least);
                runs.push(Run { page, frame: word & FRAME, length: 1, least }, mapping == before);
            }
            if runs.pages >= BATCH_PAGES {
                self.read_flags(&std::mem::take(&mut runs).runs)?;
            }
        }
        self.read_flags(&runs.runs)
    }

    /// Looks up the flags of all page frames, in the order of the frames.
    fn read_flags(&mut self, runs: &[Run]) -> Result<(), Reason> {
        let mut order: Vec<u32> =
            (0..runs.len() as u32).filter(|&run| runs[run as usize].may_contain_folio()).collect();
        order.sort_unstable_by_key(|&run| runs[run as usize].frame);
        let mut pieces = Vec::new();
        let mut bytes = Vec::new();
        let mut rest = &order[..];
        while let Some(&first) = rest.first() {
            let start = runs[first as usize].frame;
            // The flags of the next frame show whether the last folio ends before it.
            let mut end = start + runs[first as usize].length + 1;
            let together = rest.iter().skip(1).take_while(|&&run| {
                let run = runs[run as usize];
                let close = run.frame <= end + MAX_GAP_WORDS && run.frame + run.length - start < WINDOW_WORDS;
                if close {
                    end = end.max(run.frame + run.length + 1);
                }
                close
            });
            let (now, later) = rest.split_at(1 + together.count());
            rest = later;
            bytes.resize((end - start) as usize * 8, 0);
            let got = movable_blocks::fill(&mut bytes, |rest, got| self.flags.read_at(rest, start * 8 + got))
                .map_err(|error| Reason::new(format!("/proc/kpageflags could not be read: {error}")))?;
            for &run in now {
                let run = runs[run as usize];
                let from = (run.frame - start) as usize;
                folios(run, |frame| word(&bytes[..got], from + frame as usize), self.base, &mut pieces);
            }
        }
        pieces.sort_unstable_by_key(|piece: &FolioRange| piece.addresses.start);
        for piece in pieces {
            push(&mut self.pieces, piece);
        }
        Ok(())
    }
}

#[derive(Default)]
struct Runs {
    runs: Vec<Run>,
    pages: u64,
}

impl Runs {
    /// Adds a run of one page.
    fn push(&mut self, next: Run, same_mapping: bool) {
        self.pages += 1;
        match self.runs.last_mut() {
            Some(run)
                if same_mapping
                    && next.page % WINDOW_WORDS != 0
                    && run.page + run.length == next.page
                    && run.frame + run.length == next.frame =>
            {
                run.length += 1;
            }
            _ => self.runs.push(next),
        }
    }
}

/// The pieces of a run that belong to large folios; `flags` returns the flags of its n-th frame, and of the
/// frame after its last.
fn folios(run: Run, flags: impl Fn(u64) -> u64, base: PageSize, pieces: &mut Vec<FolioRange>) {
    let mut at = 0;
    while at < run.length {
        let first = flags(at);
        let mut end = at + 1;
        if first & THP == 0 || first & (HEAD | TAIL) == 0 {
            at = end;
            continue;
        }
        while end < run.length && flags(end) & TAIL != 0 {
            end += 1;
        }
        let (page, length) = (run.page + at, end - at);
        let whole = first & HEAD != 0 && flags(end) & TAIL == 0 && page % length == 0;
        let size = PageSize::new(Bytes(length << base.log2())).ok().filter(|_| whole);
        let addresses = page << base.log2()..(page + length) << base.log2();
        push(pieces, FolioRange { addresses, of: size.map_or(Folio::Part, Folio::Whole) });
        at = end;
    }
}

/// Appends a piece, or extends the last one.
fn push(pieces: &mut Vec<FolioRange>, piece: FolioRange) {
    match pieces.last_mut() {
        Some(last) if last.of == piece.of && last.addresses.end == piece.addresses.start => {
            last.addresses.end = piece.addresses.end;
        }
        _ => pieces.push(piece),
    }
}

/// The native word at `place`; 0 beyond the end.
fn word(bytes: &[u8], place: usize) -> u64 {
    u64_at(bytes, place * 8).unwrap_or(0)
}

/// The parts of `addresses` in `pieces`, which are sorted by address.
pub fn inside<'a>(
    pieces: &'a [FolioRange],
    addresses: &Range<u64>,
) -> impl Iterator<Item = (Folio, Bytes)> + use<'a> {
    let (start, end) = (addresses.start, addresses.end);
    let first = pieces.partition_point(|piece| piece.addresses.end <= start);
    pieces[first..].iter().take_while(move |piece| piece.addresses.start < end).map(move |piece| {
        let bytes = piece.addresses.end.min(end).saturating_sub(piece.addresses.start.max(start));
        (piece.of, Bytes(bytes))
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use proptest::prelude::*;

    use super::*;

    /// First page, first page after the last, and folio.
    type Found = (u64, u64, Folio);

    fn pieces(page: u64, flags: &[u64]) -> Result<Vec<Found>, Box<dyn Error>> {
        let (base, mut found): (PageSize, _) = ("4k".parse()?, Vec::new());
        // The last word belongs to the frame after the run.
        let run = Run { page, frame: 0, length: flags.len() as u64 - 1, least: 1 };
        folios(run, |frame| flags.get(frame as usize).copied().unwrap_or(0), base, &mut found);
        let plain = |piece: FolioRange| (piece.addresses.start >> 12, piece.addresses.end >> 12, piece.of);
        Ok(found.into_iter().map(plain).collect())
    }

    const H: u64 = HEAD | THP;
    const T: u64 = TAIL | THP;

    #[test]
    fn a_folio_counts_where_it_is_whole_and_aligned() -> Result<(), Box<dyn Error>> {
        let (four, two) = (Folio::Whole("16k".parse()?), Folio::Whole("8k".parse()?));
        // A single page, then two folios of 16 KiB and one of 8 KiB.
        let flags = [0, 0, 0, 0, H, T, T, T, H, T, T, T, H, T, 0, 0];
        assert_eq!(pieces(16, &flags)?, [(20, 28, four), (28, 30, two)]);
        // At another address the first ones are not aligned; the last one is.
        assert_eq!(pieces(18, &flags)?, [(22, 30, Folio::Part), (30, 32, two)]);
        Ok(())
    }

    #[test]
    fn a_folio_that_goes_on_elsewhere_is_not_whole() -> Result<(), Box<dyn Error>> {
        // Its head is not mapped here.
        assert_eq!(pieces(8, &[T, T, 0, 0])?, [(8, 10, Folio::Part)]);
        // Its tail is not mapped here: the next frame still belongs to it.
        assert_eq!(pieces(8, &[H, T, T])?, [(8, 10, Folio::Part)]);
        // A compound page of a driver is not a folio of user memory.
        assert_eq!(pieces(8, &[HEAD, TAIL, 0])?, []);
        // The huge zero page has its own flag and no head.
        assert_eq!(pieces(8, &[THP, THP, 0])?, []);
        Ok(())
    }

    #[test]
    fn a_run_is_looked_up_where_the_smallest_folio_fits() {
        let may = |page, frame, length, least| Run { page, frame, length, least }.may_contain_folio();
        assert!(may(8, 16, 4, 4) && may(7, 15, 5, 4) && may(3, 9, 1, 1));
        // Too short, not aligned, or aligned otherwise in memory than in the address.
        assert!(!may(8, 16, 3, 4) && !may(7, 15, 4, 4) && !may(8, 17, 7, 4));
    }

    #[test]
    fn pieces_are_clipped_to_the_range() -> Result<(), Box<dyn Error>> {
        let whole = Folio::Whole("64k".parse()?);
        let pieces = [
            FolioRange { addresses: 0x10000..0x30000, of: whole },
            FolioRange { addresses: 0x40000..0x41000, of: Folio::Part },
        ];
        let found = |range: Range<u64>| inside(&pieces, &range).collect::<Vec<_>>();
        assert_eq!(found(0..0x100000), [(whole, Bytes(0x20000)), (Folio::Part, Bytes(0x1000))]);
        assert_eq!(found(0x20000..0x40000), [(whole, Bytes(0x10000))]);
        assert_eq!(found(0x30000..0x40000), []);
        Ok(())
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic_and_pieces_stay_inside(
            page in 0u64..1 << 40,
            kinds in prop::collection::vec(prop::sample::select(vec![0, H, T, HEAD, TAIL, THP]), 1..100),
        ) {
            let found = pieces(page, &kinds).unwrap_or_default();
            let end = page + kinds.len() as u64 - 1;
            prop_assert!(found.iter().all(|(start, to, _)| page <= *start && start < to && *to <= end));
            prop_assert!(found.windows(2).all(|two| two[0].1 <= two[1].0));
        }
    }
}
