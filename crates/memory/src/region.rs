//! Regions: memory reserved on the first available backing of a list.

use std::{io, ops::Range};

use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    pages::coverage::Coverage,
    reading::{Reading, Reason},
    root::Root,
    sys::{
        memory::{Advice, Mapping},
        parallel_range::Span,
    },
    units::{Bytes, PageSize},
};
use serde::Serialize;

use crate::{coverage, demand::Demand, placement::Placement, target::Target};

/// Memory reserved on one backing, unmapped when dropped.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    /// Offsets of the requested bytes in the mapping.
    usable: Range<usize>,
    got: Backing,
    pub(crate) pages: RegionPageSizes,
    fallbacks: Vec<Fallback>,
}

/// A preferred backing that was not available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fallback {
    /// The backing.
    pub backing: Backing,
    /// The error of the system, and the remedy.
    pub cause: String,
}

/// No backing of the list is available.
#[derive(Debug, thiserror::Error)]
#[error("{len} could not be reserved: {}", causes(.fallbacks))]
pub struct ReserveError {
    /// The requested bytes.
    pub len: Bytes,
    /// The backings in the order tried, with their errors.
    pub fallbacks: Vec<Fallback>,
}

fn causes(fallbacks: &[Fallback]) -> String {
    if fallbacks.is_empty() {
        return "no backing was named".to_owned();
    }
    let causes: Vec<String> = fallbacks.iter().map(|f| format!("{}: {}", f.backing, f.cause)).collect();
    causes.join("; ")
}

/// Reserves `len` bytes on the first available backing of `preferences`; a single one has no fallback.
///
/// No page is populated yet. Only after that, [`Region::coverage`] shows whether the kernel allocated THPs.
/// Fails if the limits of the caller's control groups are too low: a first touch beyond them would kill the
/// process.
pub fn reserve(len: Bytes, preferences: &[Backing], sizes: &PageSizes) -> Result<Region, ReserveError> {
    reserve_at(len, preferences, sizes, &Placement::default())
}

/// Like [`reserve`], with a NUMA node and a name.
pub fn reserve_at(
    len: Bytes,
    preferences: &[Backing],
    sizes: &PageSizes,
    placement: &Placement,
) -> Result<Region, ReserveError> {
    let mut fallbacks = Vec::new();
    for &backing in preferences {
        match reserve_on(len, backing, sizes, placement) {
            Ok(region) => return Ok(Region { fallbacks, ..region }),
            Err(cause) => fallbacks.push(Fallback { backing, cause: cause.into() }),
        }
    }
    Err(ReserveError { len, fallbacks })
}

fn reserve_on(
    len: Bytes,
    backing: Backing,
    sizes: &PageSizes,
    placement: &Placement,
) -> Result<Region, Reason> {
    if let Some(missing) = sizes.missing(backing) {
        return Reason::err(missing);
    }
    let page_size = sizes.huge_page_of(backing).unwrap_or(sizes.base);
    let rounded = len.align_up(page_size);
    let rounded = rounded.ok_or_else(|| Reason::new("exceeds the address space of this machine"))?;
    let demand = Demand { backing, len: rounded, page_size, node: placement.node };
    if let Some(why) = demand.beyond_limits(&Root::live()).or_else(|| demand.beyond_node(&Root::live())) {
        return Reason::err(why);
    }
    let explain = |error| Reason::new(demand.explain(&error, &Root::live()));
    let mapping = match backing {
        Backing::Base => Mapping::anonymous(rounded),
        // One page more, so that an aligned start exists.
        Backing::Thp => Mapping::anonymous(rounded + page_size.bytes()),
        Backing::Hugetlb(_) => Mapping::hugetlb(rounded, page_size),
        Backing::Shm(_) => Mapping::shared_hugetlb(rounded, page_size),
    }
    .map_err(explain)?;
    let page = page_size.bytes().0;
    let start = (mapping.address().next_multiple_of(page) - mapping.address()) as usize;
    let whole = start..start + rounded.0 as usize;
    if whole.end > mapping.len() {
        // Linux aligns hugetlb mappings; an emulation of Linux may not.
        let address = mapping.address();
        return Reason::err(format!("the mapping at {address:#x} is not aligned to pages of {page_size}"));
    }
    match backing {
        // A kernel without THP and a filter of system calls refuse it: the memory is usable, and its coverage is read.
        Backing::Base => drop(mapping.advise(whole, Advice::NoHugePage)),
        Backing::Thp => mapping.advise(whole, Advice::HugePage).map_err(explain)?,
        Backing::Hugetlb(_) | Backing::Shm(_) => {}
    }
    if let Some(node) = placement.node {
        let refused = |error| Reason::new(format!("memory could not be bound to node {node} ({error})"));
        mapping.bind(node).map_err(refused)?;
    }
    // The name is optional: kernels without names of anonymous memory return an error.
    let _ = mapping.name(&placement.full_name());
    let explicit = backing.is_explicit();
    let pages = RegionPageSizes {
        page_size,
        huge: if explicit { Some(page_size) } else { sizes.thp },
        grain: sizes.thp.filter(|_| !explicit).map_or(page_size, |thp| thp.max(page_size)),
        // A THP may fall back to base pages, each of which must be touched.
        step: if explicit { page_size } else { sizes.base },
    };
    let usable = start..start + len.0 as usize;
    Ok(Region { mapping, usable, got: backing, pages, fallbacks: Vec::new() })
}

impl Region {
    /// The backing that the memory is reserved on.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.got
    }

    /// The requested page size: that of the pool, of a THP at PMD size, or the base page size.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.pages.page_size
    }

    /// The backings tried before, with their errors.
    #[must_use]
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// The reserved bytes, aligned to the page size.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.mapping.bytes()[self.usable.clone()]
    }

    /// The reserved bytes, mutable.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let usable = self.usable.clone();
        &mut self.mapping.bytes_mut()[usable]
    }

    /// The coverage, read from the page table.
    #[must_use]
    pub fn coverage(&self) -> Reading<Coverage> {
        let whole = self.mapping.addresses(&(0..self.mapping.len()));
        coverage::of_parts(&whole, &[(self.addresses(), self.pages.huge)])
    }

    /// The addresses of all pages that hold a byte of `range`, given as byte offsets.
    #[must_use]
    pub fn pages_holding(&self, range: Range<usize>) -> Range<u64> {
        let (all, page) = (self.addresses(), self.page_size().bytes().0);
        let start = place(&all, range.start) / page * page;
        if range.is_empty() {
            return start..start;
        }
        start..place(&all, range.end).next_multiple_of(page).min(all.end)
    }

    /// The addresses of the whole pages in `range`, given as byte offsets. The rest of the last page of the
    /// region cannot be used otherwise and counts as part of it.
    #[must_use]
    pub fn pages_within(&self, range: Range<usize>) -> Range<u64> {
        let (all, page) = (self.addresses(), self.page_size().bytes().0);
        let to_the_end = range.end >= self.usable.len();
        let end = if to_the_end { all.end } else { place(&all, range.end) / page * page };
        place(&all, range.start).next_multiple_of(page).min(end)..end
    }

    /// Removes the region; returns it with the error if the kernel refuses.
    #[allow(clippy::result_large_err)] // Rare.
    pub(crate) fn unmap(self) -> Result<(), (Region, io::Error)> {
        let Region { mapping, usable, got, pages, fallbacks } = self;
        mapping.unmap().map_err(|(mapping, error)| (Region { mapping, usable, got, pages, fallbacks }, error))
    }

    fn addresses(&self) -> Range<u64> {
        self.mapping.addresses(&self.whole_pages())
    }

    /// The whole region, extended to whole pages, as work for several threads.
    pub(crate) fn target(&mut self) -> Target<'_> {
        let (pages, whole) = (self.pages, self.whole_pages());
        pages.target(Span::new(&mut self.mapping.bytes_mut()[whole]))
    }

    /// The offsets of the region, extended to whole pages of the requested size.
    fn whole_pages(&self) -> Range<usize> {
        let page = self.page_size().bytes().0 as usize;
        self.usable.start..self.usable.end.next_multiple_of(page).min(self.mapping.len())
    }
}

/// The page sizes of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionPageSizes {
    page_size: PageSize,
    huge: Option<PageSize>,
    grain: PageSize,
    step: PageSize,
}

impl RegionPageSizes {
    /// A part of the region, or the whole, as work for several threads.
    pub fn target(self, span: Span<'_>) -> Target<'_> {
        Target {
            parts: vec![(span.addresses(), self.huge)],
            page_size: self.page_size,
            grain: self.grain,
            step: self.step,
            span,
        }
    }
}

/// The address at an offset, at most the end.
fn place(all: &Range<u64>, offset: usize) -> u64 {
    all.start.saturating_add(offset as u64).min(all.end)
}

#[cfg(test)]
mod tests {
    use std::{error::Error, ops::ControlFlow};

    use proptest::prelude::*;

    use super::*;
    use crate::pretouch::Pretouch;

    type TestResult = Result<(), Box<dyn Error>>;

    fn sizes() -> Result<PageSizes, Box<dyn Error>> {
        Ok(PageSizes::read(&Root::live())?)
    }

    fn pretouch(region: &mut Region) -> Result<(), Box<dyn Error>> {
        let stopped = region.pretouch(&Pretouch::default(), &mut |_| ControlFlow::Continue(())).stopped;
        stopped.map_or(Ok(()), |stopped| Err(stopped.into()))
    }

    /// Waits until `bytes` are resident: pages under migration for compaction are not present for a moment.
    fn coverage_of_at_least(region: &Region, bytes: Bytes) -> Result<Coverage, Box<dyn Error>> {
        for _ in 0..60_000 {
            let coverage = region.coverage().known().cloned().ok_or("no reading")?;
            if coverage.resident >= bytes {
                return Ok(coverage);
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        Err(format!("not {bytes} present: {:?}", region.coverage()).into())
    }

    #[test]
    fn base_memory_holds_no_huge_page() -> TestResult {
        let mut region = reserve(Bytes(8 << 20), &[Backing::Base], &sizes()?)?;
        pretouch(&mut region)?;
        let coverage = coverage_of_at_least(&region, Bytes(8 << 20))?;
        assert_eq!((coverage.resident, coverage.share()), (Bytes(8 << 20), Some(0.0)));
        Ok(())
    }

    #[test]
    fn thp_memory_is_aligned_and_its_coverage_is_read() -> TestResult {
        let sizes = sizes()?;
        let Some(thp) = sizes.thp else { return Ok(()) };
        let mut region = reserve(Bytes(5 << 20), &[Backing::Thp], &sizes)?;
        pretouch(&mut region)?;
        region.bytes_mut()[0] = 1;
        assert_eq!(region.bytes().as_ptr() as u64 % thp.bytes().0, 0);
        assert_eq!(region.bytes().len(), 5 << 20);
        coverage_of_at_least(&region, Bytes(5 << 20))?;
        Ok(())
    }

    #[test]
    fn a_fallback_carries_its_cause() -> TestResult {
        let huge = Bytes(1 << 50);
        let sizes = sizes()?;
        let strict = reserve(huge, &[Backing::Hugetlb(None)], &sizes);
        assert!(strict.is_err());
        let region = reserve(Bytes(1 << 20), &["hugetlb:1TiB".parse()?, Backing::Base], &sizes)?;
        assert_eq!(region.backing(), Backing::Base);
        assert_eq!(region.fallbacks().len(), 1);
        assert!(region.fallbacks()[0].cause.contains("no pool of 1TiB"), "{:?}", region.fallbacks());
        Ok(())
    }

    #[test]
    fn memory_of_a_node_that_is_not_there_is_refused() -> TestResult {
        let placement = Placement { node: Some(1000), name: None };
        let refused = reserve_at(Bytes(1 << 20), &[Backing::Base], &sizes()?, &placement);
        let cause = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(cause.contains("could not be bound to node 1000"), "{cause}");
        Ok(())
    }

    #[test]
    fn an_empty_preference_list_is_an_error() -> TestResult {
        assert!(reserve(Bytes(1), &[], &sizes()?).is_err());
        Ok(())
    }

    proptest! {
        #[test]
        fn pages_hold_a_range_or_lie_within(len in 1usize..6 << 20, from in 0usize..7 << 20, to in 0usize..7 << 20) {
            let sizes = sizes().map_err(|error| TestCaseError::fail(error.to_string()))?;
            for backing in [Backing::Base, Backing::Thp] {
                if sizes.missing(backing).is_some() { continue }
                let region = reserve(Bytes(len as u64), &[backing], &sizes);
                let region = region.map_err(|error| TestCaseError::fail(error.to_string()))?;
                let (all, page) = (region.addresses(), region.page_size().bytes().0);
                let (first, last) = (place(&all, from), place(&all, to));
                let (holding, within) = (region.pages_holding(from..to), region.pages_within(from..to));
                for pages in [&holding, &within] {
                    prop_assert!(all.start <= pages.start && pages.start <= pages.end && pages.end <= all.end);
                    prop_assert!(pages.is_empty() || (pages.start % page, pages.end % page) == (0, 0));
                }
                if from < to && from < len {
                    prop_assert!(holding.start <= first && last <= holding.end);
                    prop_assert!(first - holding.start < page && holding.end - last < page);
                    prop_assert!(within.is_empty() || (first <= within.start && (within.end <= last || to >= len)));
                } else {
                    prop_assert!(from < to || (holding.is_empty() && (within.is_empty() || to >= len)));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_length_is_usable_to_its_last_byte(len in 1u64..6 << 20) {
            let sizes = sizes().map_err(|error| TestCaseError::fail(error.to_string()))?;
            for backing in [Backing::Base, Backing::Thp] {
                if sizes.missing(backing).is_some() { continue }
                let region = reserve(Bytes(len), &[backing], &sizes);
                let mut region = region.map_err(|error| TestCaseError::fail(error.to_string()))?;
                region.bytes_mut()[len as usize - 1] = 7;
                pretouch(&mut region).map_err(|error| TestCaseError::fail(error.to_string()))?;
                prop_assert_eq!(region.bytes()[len as usize - 1], 7);
                prop_assert_eq!(region.bytes().len() as u64, len);
            }
        }
    }
}
