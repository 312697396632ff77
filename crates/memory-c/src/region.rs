//! Memory: reserved, looked at, given back.

#![allow(unsafe_code)]
// The text is that of the header, for C programmers, to whom it is no news.
#![allow(clippy::missing_safety_doc)]

use crate::{
    arguments::{self, Place},
    error::{Failure, status, to_c, value},
    handles, preferences,
    pretouch::addresses,
};
use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    pages::coverage::Coverage,
    reading::Reading,
    root::Root,
    units::{Bytes, PageSize},
};
use hugewise_memory::{
    coverage,
    placement::Placement,
    region::{self, Region as Reserved},
};
use std::{
    collections::BTreeMap,
    ffi::{CString, c_char, c_int, c_void},
    ops::Range,
    ptr,
    sync::{Arc, OnceLock},
};

/// Reserved memory. It is known by this handle alone, which points to nothing.
pub struct Region {
    _opaque: [u8; 0],
}

/// How much lies on pages of one size.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBytes {
    /// The size of the pages, in bytes.
    pub page_size: u64,
    /// How much memory is present on them, in bytes.
    pub bytes: u64,
}

/// Where memory is to come from, and what it is called. Set struct_size, what you want to choose, and all
/// else to zero: hugewise_reserve_options options = {.struct_size = sizeof options, .name = "cache"};
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReserveOptions {
    /// sizeof(hugewise_reserve_options).
    pub struct_size: u64,
    /// A name for the memory, in UTF-8: /proc/PID/maps shows it as [anon:hugewise NAME], where the kernel
    /// keeps names (CONFIG_ANON_VMA_NAME), with _ for what it does not take and up to 79 bytes; NULL: none.
    pub name: *const c_char,
    /// 1: all of it is to come from the NUMA node below, and from no other; 0: from anywhere.
    pub bind: u32,
    /// The number of the node.
    pub node: u32,
}

impl Default for ReserveOptions {
    fn default() -> ReserveOptions {
        ReserveOptions {
            struct_size: size_of::<ReserveOptions>() as u64,
            name: ptr::null(),
            bind: 0,
            node: 0,
        }
    }
}

/// The size that the struct had at first: a program may have been compiled with it.
const FIRST_OPTIONS: usize = size_of::<ReserveOptions>();

/// A region, and what C may look at as long as it is there.
pub(crate) struct Held {
    region: Reserved,
    base_size: PageSize,
    /// Where its memory begins. Kept from the start, since a reference to memory that C writes to
    /// must not be made later.
    address: usize,
    len: usize,
    backing: CString,
    fallbacks: Vec<(CString, CString)>,
}

impl Held {
    fn new(mut region: Reserved, base_size: PageSize) -> Held {
        let bytes = region.bytes_mut();
        let (address, len) = (bytes.as_mut_ptr().expose_provenance(), bytes.len());
        let texts =
            |fallback: &region::Fallback| (to_c(&fallback.backing.to_string()), to_c(&fallback.cause));
        let fallbacks = region.fallbacks().iter().map(texts).collect();
        let backing = to_c(&region.backing().to_string());
        Held { region, base_size, address, len, backing, fallbacks }
    }

    pub(crate) fn region(&self) -> &Reserved {
        &self.region
    }

    /// A part of it, checked to be one.
    pub(crate) fn range(&self, offset: usize, len: usize) -> Result<Range<usize>, Failure> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        match end {
            _ if len == 0 => Err(Failure::argument("len is 0")),
            None => Err(Failure::argument(format!(
                "offset {offset} and len {len} reach beyond the region, which has {} bytes",
                self.len
            ))),
            Some(end) => Ok(offset..end),
        }
    }

    fn fallback(&self, index: usize) -> Result<&(CString, CString), Failure> {
        self.fallbacks.get(index).ok_or_else(|| {
            Failure::argument(format!("there is no fallback {index}: there are {}", self.fallbacks.len()))
        })
    }
}

/// Reserves len bytes on the first of some backings that this machine can give.
///
/// backings: the best first, separated by commas, like "hugetlb:2MiB,thp,base": hugetlb:SIZE (a pool of
/// huge pages), shm:SIZE (the same by shared memory), both also without a SIZE, for the machine's
/// default one; thp (transparent huge pages); base (no huge pages). A single backing is strict: that
/// one or none.
///
/// The memory begins on a boundary of its page size, is zeroed, can be read and written, and belongs
/// to this process. Nothing is present yet: hugewise_region_pretouch() makes it so. Whether thp gave
/// huge pages only hugewise_region_coverage() tells, when it is present.
///
/// region: where the handle is written; NULL is written where there is none. It is to be given back
/// with hugewise_region_release().
///
/// What the limits of the process's control groups (memory, pages of pools) do not allow cannot be had.
///
/// HUGEWISE_FAILED with EINVAL (an argument is wrong) or ENOMEM (no backing of the list could be had;
/// the text says of each why).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugewise_reserve(
    len: usize,
    backings: *const c_char,
    region: *mut *mut Region,
) -> c_int {
    // SAFETY: the caller answers for it.
    unsafe { hugewise_reserve_at(len, backings, ptr::null(), region) }
}

/// The same on one NUMA node, or with a name.
///
/// options: NULL: as by hugewise_reserve().
///
/// HUGEWISE_FAILED also with E2BIG (options of a later version). A node that there is not, or that
/// the process may not use, is a backing that could not be had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugewise_reserve_at(
    len: usize,
    backings: *const c_char,
    options: *const ReserveOptions,
    region: *mut *mut Region,
) -> c_int {
    status(|| {
        // SAFETY: the caller answers for it.
        let place = unsafe { Place::new(region, "region") }?;
        place.write(ptr::null_mut());
        // SAFETY: the caller answers for it.
        let backings = unsafe { arguments::text(backings, "backings") }?;
        let wanted = preferences::parse(&backings)
            .map_err(|error| Failure::argument(format!("backings \"{backings}\": {error}")))?;
        // SAFETY: the caller answers for it.
        let placement = unsafe { placement(options) }?;
        if len == 0 {
            return Err(Failure::argument("len is 0: there is no region of nothing"));
        }
        let sizes = page_sizes()?;
        let reserved = region::reserve_at(Bytes(len as u64), &wanted, sizes, &placement)
            .map_err(|error| Failure::new(libc::ENOMEM, error.to_string()))?;
        place.write(handles::keep(Held::new(reserved, sizes.base)));
        Ok(())
    })
}

/// # Safety
/// `options` is NULL, or a struct that begins with its size, whose name is NULL or text.
unsafe fn placement(options: *const ReserveOptions) -> Result<Placement, Failure> {
    // SAFETY: the caller answers for it.
    let options = unsafe { arguments::grown(options, FIRST_OPTIONS, "options") }?;
    let node = match options.bind {
        0 => None,
        1 => Some(options.node),
        other => return Err(Failure::argument(format!("options->bind is {other}: there are 0 and 1"))),
    };
    let name = match options.name.is_null() {
        true => None,
        // SAFETY: the caller answers for it.
        false => Some(unsafe { arguments::text(options.name, "options->name") }?),
    };
    Ok(Placement { node, name })
}

/// Where its memory begins; NULL for a wrong handle. Valid until it is released.
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_region_address(region: *const Region) -> *mut c_void {
    value(ptr::null_mut(), || Ok(ptr::with_exposed_provenance_mut(handles::find(region)?.address)))
}

/// How many bytes it has: as many as were asked for; 0 for a wrong handle.
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_region_len(region: *const Region) -> usize {
    value(0, || Ok(handles::find(region)?.len))
}

/// The size of the pages it was asked for on, in bytes; 0 for a wrong handle.
///
/// What it got is told by hugewise_region_coverage().
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_region_page_size(region: *const Region) -> usize {
    value(0, || Ok(handles::find(region)?.region.page_size().bytes().0 as usize))
}

/// The backing of the list that it was got on, like "hugetlb:2MiB"; NULL for a wrong handle. Valid
/// until the region is released.
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_region_backing(region: *const Region) -> *const c_char {
    value(ptr::null(), || Ok(handles::find(region)?.backing.as_ptr()))
}

/// How many backings of the list were tried before, and could not be had; 0 for a wrong handle.
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_region_fallbacks(region: *const Region) -> usize {
    value(0, || Ok(handles::find(region)?.fallbacks.len()))
}

/// The backing of one of them, counted from 0, in the order of the list; NULL where there is none.
/// Valid until the region is released.
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_region_fallback_backing(region: *const Region, index: usize) -> *const c_char {
    value(ptr::null(), || Ok(handles::find(region)?.fallback(index)?.0.as_ptr()))
}

/// Why it could not be had; NULL where there is none. Valid until the region is released.
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_region_fallback_cause(region: *const Region, index: usize) -> *const c_char {
    value(ptr::null(), || Ok(handles::find(region)?.fallback(index)?.1.as_ptr()))
}

/// What the kernel really gave: how much of the region is present on pages of each size.
///
/// pages: capacity items to write to; one for each page size on which anything is present, the
/// smallest first. The first stands for base pages and holds smaller transparent huge pages (mTHP),
/// too, which this reading does not tell apart; it is there even with 0 bytes. 8 are enough for every
/// machine known.
/// count: how many there are, even if capacity is less.
///
/// Pages that the kernel is moving at this moment (compaction) are not present: they are in the next
/// reading.
///
/// HUGEWISE_COULD_NOT_TELL where the kernel does not say, and HUGEWISE_FAILED with EINVAL or ERANGE
/// (capacity is too small). pages and count mean nothing then, but for count with ERANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugewise_region_coverage(
    region: *const Region,
    pages: *mut PageBytes,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    status(|| {
        let held = handles::find(region)?;
        // SAFETY: the caller answers for it.
        unsafe { tell(pages, capacity, count, || Ok((held.region.coverage(), held.base_size))) }
    })
}

/// The same for len bytes from start on, of any memory of this process: for all base pages that hold one
/// of them. Its mappings are looked up first, in /proc/self/smaps: that takes longer the more memory
/// the process has, and hugewise_region_coverage() does without it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugewise_coverage(
    start: *const c_void,
    len: usize,
    pages: *mut PageBytes,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    status(|| {
        let addresses = addresses(start, len)?;
        let read = || {
            let sizes = page_sizes()?;
            Ok((coverage::of(addresses, sizes), sizes.base))
        };
        // SAFETY: the caller answers for it.
        unsafe { tell(pages, capacity, count, read) }
    })
}

/// # Safety
/// `pages` is NULL or an array of `capacity` items; `count` is NULL or may be written.
unsafe fn tell(
    pages: *mut PageBytes,
    capacity: usize,
    count: *mut usize,
    read: impl FnOnce() -> Result<(Reading<Coverage>, PageSize), Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller answers for it.
    let count = unsafe { Place::new(count, "count") }?;
    // SAFETY: the caller answers for it.
    let pages = unsafe { arguments::array(pages, capacity, "pages") }?;
    let (coverage, base_size) = read()?;
    let found = by_page_size(&coverage, base_size)?;
    count.write(found.len());
    let room = pages.get_mut(..found.len()).ok_or_else(|| {
        Failure::new(libc::ERANGE, format!("capacity is {capacity}, and there are {}", found.len()))
    })?;
    room.copy_from_slice(&found);
    Ok(())
}

/// Read once: the sizes stay as they are until the machine is started anew.
fn page_sizes() -> Result<&'static PageSizes, Failure> {
    static SIZES: OnceLock<PageSizes> = OnceLock::new();
    if let Some(sizes) = SIZES.get() {
        return Ok(sizes);
    }
    let sizes = PageSizes::read(&Root::live())
        .map_err(|why| Failure::new(libc::ENODATA, format!("the base page size could not be told: {why}")))?;
    Ok(SIZES.get_or_init(|| sizes))
}

fn by_page_size(coverage: &Reading<Coverage>, base_size: PageSize) -> Result<Vec<PageBytes>, Failure> {
    let coverage = match coverage {
        Reading::Known(coverage) => coverage,
        Reading::CouldNotTell { could_not_tell } => return Err(Failure::could_not_tell(could_not_tell)),
    };
    let huge: Bytes = coverage.huge.values().copied().sum();
    let mut sizes = BTreeMap::from([(base_size, coverage.resident.saturating_sub(huge))]);
    sizes.extend(coverage.huge.iter().map(|(size, bytes)| (*size, *bytes)));
    Ok(sizes.iter().map(|(size, bytes)| PageBytes { page_size: size.bytes().0, bytes: bytes.0 }).collect())
}

/// Gives a region back to the kernel: its memory, its handle, and all texts got by it.
///
/// A call of another thread that is at work on it ends first, and the memory goes then. That no thread
/// uses the memory itself any more is for the program to see to.
///
/// HUGEWISE_FAILED with EINVAL for a wrong handle, also for one that was released already: handles are
/// never used twice.
#[unsafe(no_mangle)]
pub extern "C" fn hugewise_region_release(region: *mut Region) -> c_int {
    status(|| {
        // By several threads, where nobody is at work on it; or else who is last gives it back.
        if let Some(held) = Arc::into_inner(handles::take(region)?) {
            held.region.release(None);
        }
        Ok(())
    })
}
