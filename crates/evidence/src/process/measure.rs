//! How many bytes of each region are on which pages.

use std::{collections::BTreeMap, fs::File, ops::Range};

use hugewise_linux::{
    pages::folios::{self, Folio, Piece},
    proc::{
        process::Process,
        smaps::{Memory, Vma},
    },
    reading::Reading,
    root::Root,
    sys::pagemap::{self, Scan},
    units::{Bytes, PageSize},
};

use super::{
    Machine,
    names::{self, Part},
    reason::{self, Evidence, Judged, Seen},
    views::Views,
};

/// All parts, in their order.
pub struct AllMeasured {
    /// Each of them.
    pub parts: Vec<Measured>,
    /// What should be known of the reading.
    pub notes: Vec<String>,
}

/// What was counted of one part.
#[derive(Clone, Debug)]
pub struct Measured {
    /// On base pages; on mTHP too, where folios were not told apart.
    pub base: Bytes,
    /// On mTHP, by size.
    pub mthp: BTreeMap<PageSize, Bytes>,
    /// By huge entries.
    pub thp: Bytes,
    /// On pages of a pool, by size.
    pub hugetlb: BTreeMap<PageSize, Bytes>,
    /// Swapped out.
    pub swap: Bytes,
    /// Of those on base pages: in whole THPs.
    pub split: Bytes,
    /// Of those on base pages: in folios not mapped as a whole, or not aligned.
    pub part_of_folio: Bytes,
    /// Mappings, in part or as a whole.
    pub mappings: usize,
    /// Bytes that an earlier part maps too.
    pub counted_above: Bytes,
    /// Where that begins.
    pub same_memory_as: Option<u64>,
    /// Why most of what is small is so.
    pub reason: Option<Judged>,
    memory: Memory,
    /// Small bytes by reason.
    reasons: Vec<(Judged, Bytes)>,
}

impl Measured {
    fn nothing() -> Measured {
        Measured {
            base: Bytes::ZERO,
            mthp: BTreeMap::new(),
            thp: Bytes::ZERO,
            hugetlb: BTreeMap::new(),
            swap: Bytes::ZERO,
            split: Bytes::ZERO,
            part_of_folio: Bytes::ZERO,
            mappings: 0,
            counted_above: Bytes::ZERO,
            same_memory_as: None,
            reason: None,
            memory: Memory::Anonymous,
            reasons: Vec::new(),
        }
    }

    /// All that is present.
    pub fn resident(&self) -> Bytes {
        let mthp: Bytes = self.mthp.values().copied().sum();
        self.base + mthp + self.thp + self.hugetlb.values().copied().sum()
    }

    /// What goes into the words of the reason.
    pub fn evidence(&self, process: &Process) -> Evidence {
        Evidence { pid: process.pid, split: self.split, swap: self.swap, memory: self.memory }
    }
}

/// One mapping, or the part of it that belongs to a region.
struct Piecewise<'a> {
    vma: &'a Vma,
    addresses: Range<u64>,
    rss: Bytes,
    thp: Bytes,
    hugetlb: Bytes,
    swap: Bytes,
}

/// Counts every part. Parts are in the order of their addresses and lie apart from each other.
pub fn measure(
    root: &Root,
    machine: &Machine,
    process: &Process,
    vmas: &[Vma],
    parts: &[Part],
    folios: &Reading<Vec<Piece>>,
    views: &Views,
) -> AllMeasured {
    let mut splitter = Splitter { root, pid: process.pid, pagemap: None, unsplit: 0 };
    let context = Context {
        machine,
        folios: folios.known().map_or(&[], Vec::as_slice),
        process_off: process.thp_enabled.known() == Some(&false),
        wants_pool: names::wants_pool(&process.command),
    };
    let mut all: Vec<Measured> = Vec::with_capacity(parts.len());
    let mut first = 0;
    for part in parts {
        let mut measured = Measured::nothing();
        while vmas.get(first).is_some_and(|vma| vma.addresses.end <= part.addresses.start) {
            first += 1;
        }
        for (index, vma) in vmas.iter().enumerate().skip(first) {
            if vma.addresses.start >= part.addresses.end {
                break;
            }
            let piece = splitter.part_of(vma, &part.addresses);
            measured.add(&piece, part, &context);
            if let Some(view) = views.get(&index).filter(|_| vma.addresses.start >= part.addresses.start) {
                measured.counted_above += view.bytes;
                measured.same_memory_as = measured.same_memory_as.or(Some(view.of));
            }
        }
        let most = measured.reasons.iter().max_by_key(|(_, bytes)| *bytes);
        measured.reason = most.map(|(judged, _)| *judged);
        all.push(measured);
    }
    let mut notes = Vec::new();
    if splitter.unsplit > 0 {
        notes.push(format!(
            "{} mappings hold more than one region, and the kernel did not tell what is where (PAGEMAP_SCAN, \
             Linux 6.7): each is counted with the region that begins in it",
            splitter.unsplit
        ));
    }
    AllMeasured { parts: all, notes }
}

/// What holds for all mappings of the process.
struct Context<'a> {
    machine: &'a Machine,
    folios: &'a [Piece],
    process_off: bool,
    wants_pool: bool,
}

impl Measured {
    fn add(&mut self, piece: &Piecewise<'_>, part: &Part, context: &Context<'_>) {
        let (mut split, mut part_of_folio) = (Bytes::ZERO, Bytes::ZERO);
        let mut base = piece.rss.saturating_sub(piece.thp);
        for (folio, bytes) in folios::inside(context.folios, &piece.addresses) {
            match folio {
                Folio::Part => part_of_folio += bytes,
                Folio::Whole(size) if context.machine.pmd().is_some_and(|pmd| size >= pmd) => split += bytes,
                Folio::Whole(size) => {
                    // It was read at another moment: never more than there is.
                    let bytes = bytes.min(base);
                    base = base.saturating_sub(bytes);
                    if bytes > Bytes::ZERO {
                        *self.mthp.entry(size).or_default() += bytes;
                    }
                }
            }
        }
        let (split, part_of_folio) = (split.min(base), part_of_folio.min(base));
        self.mappings += 1;
        self.base += base;
        self.thp += piece.thp;
        self.swap += piece.swap;
        self.split += split;
        self.part_of_folio += part_of_folio;
        if let (true, Ok(size)) = (piece.hugetlb > Bytes::ZERO, PageSize::new(piece.vma.kernel_page_size)) {
            *self.hugetlb.entry(size).or_default() += piece.hugetlb;
        }
        let memory = piece.vma.memory();
        let seen = Seen {
            addresses: piece.vma.addresses.clone(),
            offset: piece.vma.offset,
            memory,
            advice: piece.vma.advice,
            eligible: piece.vma.thp_eligible,
            small: base,
            thp: piece.vma.thp,
            split,
            swap: piece.swap,
            process_off: context.process_off,
            wants_pool: context.wants_pool && part.kind.is_for_large_pages(),
        };
        if let Some(judged) = reason::judge(&seen, context.machine) {
            self.memory = memory;
            let bytes = base + piece.swap;
            match self.reasons.iter_mut().find(|(other, _)| *other == judged) {
                Some((_, sum)) => *sum += bytes,
                None => self.reasons.push((judged, bytes)),
            }
        }
    }
}

/// Tells what of a mapping lies in a part of its addresses, which smaps does not.
struct Splitter<'a> {
    root: &'a Root,
    pid: u32,
    pagemap: Option<Option<File>>,
    unsplit: usize,
}

impl Splitter<'_> {
    fn part_of<'a>(&mut self, vma: &'a Vma, part: &Range<u64>) -> Piecewise<'a> {
        let addresses = vma.addresses.start.max(part.start)..vma.addresses.end.min(part.end);
        let whole =
            Piecewise { vma, addresses, rss: vma.rss, thp: vma.thp, hugetlb: vma.hugetlb, swap: vma.swap };
        let nothing = |addresses| Piecewise {
            vma,
            addresses,
            rss: Bytes::ZERO,
            thp: Bytes::ZERO,
            hugetlb: Bytes::ZERO,
            swap: Bytes::ZERO,
        };
        if whole.addresses == vma.addresses || vma.rss + vma.hugetlb + vma.swap == Bytes::ZERO {
            return whole;
        }
        let begins_here = whole.addresses.start == vma.addresses.start;
        match self.scan(&whole.addresses) {
            Some(Scan { present, huge }) if vma.is_hugetlb => {
                let _ = huge;
                Piecewise { hugetlb: present, ..nothing(whole.addresses) }
            }
            // What is swapped out is not told by address here: counted with the first part.
            Some(Scan { present, huge }) => Piecewise {
                rss: present,
                thp: huge,
                swap: if begins_here { vma.swap } else { Bytes::ZERO },
                ..nothing(whole.addresses)
            },
            None if begins_here => {
                self.unsplit += 1;
                whole
            }
            None => nothing(whole.addresses),
        }
    }

    fn scan(&mut self, addresses: &Range<u64>) -> Option<Scan> {
        let path = self.root.path(format!("proc/{}/pagemap", self.pid));
        let pagemap = self.pagemap.get_or_insert_with(|| File::open(path).ok()).as_ref()?;
        let mut scan = Scan { present: Bytes::ZERO, huge: Bytes::ZERO };
        for mapped in pagemap::present(pagemap, addresses.clone()).ok()? {
            let bytes = Bytes(mapped.addresses.end - mapped.addresses.start);
            scan.present += bytes;
            if mapped.huge {
                scan.huge += bytes;
            }
        }
        Some(scan)
    }
}
