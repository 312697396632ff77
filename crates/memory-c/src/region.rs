//! Reserving memory, reading its coverage, and releasing it.

#![allow(unsafe_code)]
// The docs are the header's, for C programmers.
#![allow(clippy::missing_safety_doc)]

use crate::{
    arguments::{self, OutputPointer, addresses},
    error::{Failure, status, to_c, value},
    handles::Handles,
    preferences,
};
use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    pages::coverage::Coverage,
    reading::Reading,
    units::{Bytes, PageSize},
};
use hugewise_memory::{
    Stopped, coverage,
    placement::Placement,
    region::{self, Region as Reserved},
};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{CString, c_char, c_int, c_void},
    ops::Range,
    ptr,
    sync::{Arc, OnceLock},
};

/// A handle of reserved memory; not a pointer to anything.
pub struct Region {
    _opaque: [u8; 0],
}

/// Memory on pages of one size.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBytes {
    /// The page size, in bytes.
    pub page_size: u64,
    /// Resident bytes on such pages.
    pub bytes: u64,
}

/// The NUMA node and the name of memory. Set struct_size and the fields that differ from the default, all
/// others to zero:
/// hugewise_reserve_options options = {.struct_size = sizeof options, .name = "cache"};
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReserveOptions {
    /// sizeof(hugewise_reserve_options).
    pub struct_size: u64,
    /// A name for the memory, in UTF-8, or NULL: /proc/PID/maps shows it as [anon:hugewise NAME] if the
    /// kernel has names (CONFIG_ANON_VMA_NAME), with _ for characters that it rejects and cut at 79 bytes.
    pub name: *const c_char,
    /// 1: allocate only from the NUMA node in `node`; 0: from any node.
    pub bind: u32,
    /// The number of the NUMA node.
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

/// The size of the struct in its first version, with which a program may have been compiled.
const FIRST_OPTIONS: usize = size_of::<ReserveOptions>();

/// A region with the values that C gets pointers to, valid while it exists.
pub(crate) struct HeldRegion {
    region: Reserved,
    base_size: PageSize,
    /// The start of its memory. Stored at creation: later, no reference may be made to memory that C writes.
    address: usize,
    len: usize,
    backing: CString,
    fallbacks: Vec<(CString, CString)>,
}

pub(crate) static REGIONS: Handles<HeldRegion> = Handles::new();

impl HeldRegion {
    fn new(mut region: Reserved, base_size: PageSize) -> HeldRegion {
        let bytes = region.bytes_mut();
        let (address, len) = (bytes.as_mut_ptr().expose_provenance(), bytes.len());
        let texts =
            |fallback: &region::Fallback| (to_c(&fallback.backing.to_string()), to_c(&fallback.cause));
        let fallbacks = region.fallbacks().iter().map(texts).collect();
        let backing = to_c(&region.backing().to_string());
        HeldRegion { region, base_size, address, len, backing, fallbacks }
    }

    pub(crate) fn region(&self) -> &Reserved {
        &self.region
    }

    /// The offsets from `offset` to `offset + len`, if they are within the region.
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
        let count = self.fallbacks.len();
        self.fallbacks.get(index).ok_or_else(|| {
            Failure::argument(format!("fallback {index} does not exist: the region has {count}"))
        })
    }
}

/// Reserves len bytes on the first available backing of a list.
///
/// backings: the preferred first, separated by commas, for example "hugetlb:2MiB,thp,base": hugetlb:SIZE (a
/// pool of huge pages), shm:SIZE (a pool, through shared memory), both also without SIZE for the default huge
/// page size; thp (transparent huge pages); base (no huge pages). A list of one has no fallback.
///
/// The memory is aligned to its page size, zeroed, readable, writable and private to this process. No page is
/// populated yet: see hugewise_region_pretouch(). Only after that, hugewise_region_coverage() shows whether
/// the kernel allocated transparent huge pages.
///
/// region: receives the handle, or NULL on failure. Release it with hugewise_region_release().
///
/// A backing beyond the limits of the process's control groups (memory, hugetlb) is not available.
///
/// Returns HUGEWISE_FAILED with EINVAL (an argument is wrong) or ENOMEM (no backing of the list is available;
/// the message has the reason for each).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn hugewise_reserve(
    len: usize,
    backings: *const c_char,
    region: *mut *mut Region,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { hugewise_reserve_at(len, backings, ptr::null(), region) }
}

/// Like hugewise_reserve(), on one NUMA node or with a name.
///
/// options: NULL for the defaults.
///
/// Returns HUGEWISE_FAILED also with E2BIG (options of a later version). A NUMA node that does not exist, or
/// that the process may not use, makes a backing unavailable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn hugewise_reserve_at(
    len: usize,
    backings: *const c_char,
    options: *const ReserveOptions,
    region: *mut *mut Region,
) -> c_int {
    status(|| {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { OutputPointer::new(region, "region") }?;
        place.write(ptr::null_mut());
        // SAFETY: guaranteed by the caller.
        let backings = unsafe { arguments::text(backings, "backings") }?;
        let wanted = preferences::parse(&backings)
            .map_err(|error| Failure::argument(format!("backings \"{backings}\": {error}")))?;
        // SAFETY: guaranteed by the caller.
        let placement = unsafe { placement(options) }?;
        if len == 0 {
            return Err(Failure::argument("len is 0: a region has at least 1 byte"));
        }
        let sizes = page_sizes()?;
        let reserved = region::reserve_at(Bytes(len as u64), &wanted, &sizes, &placement)
            .map_err(|error| Failure::new(libc::ENOMEM, error.to_string()))?;
        place.write(REGIONS.keep(HeldRegion::new(reserved, sizes.base)));
        Ok(())
    })
}

/// # Safety
/// `options` is NULL, or a struct that begins with its size, whose name is NULL or a string.
unsafe fn placement(options: *const ReserveOptions) -> Result<Placement, Failure> {
    // SAFETY: guaranteed by the caller.
    let options = unsafe { arguments::copy_versioned(options, FIRST_OPTIONS, "options") }?;
    let node = match options.bind {
        0 => None,
        1 => Some(options.node),
        other => return Err(Failure::argument(format!("options->bind is {other}: valid are 0 and 1"))),
    };
    let name = match options.name.is_null() {
        true => None,
        // SAFETY: guaranteed by the caller.
        false => Some(unsafe { arguments::text(options.name, "options->name") }?),
    };
    Ok(Placement { node, name })
}

/// The start of the memory; NULL for an invalid handle. Valid until the region is released.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_region_address(region: *const Region) -> *mut c_void {
    value(ptr::null_mut(), || Ok(ptr::with_exposed_provenance_mut(REGIONS.find(region)?.address)))
}

/// The requested size in bytes; 0 for an invalid handle.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_region_len(region: *const Region) -> usize {
    value(0, || Ok(REGIONS.find(region)?.len))
}

/// The requested page size in bytes; 0 for an invalid handle.
///
/// hugewise_region_coverage() has the page sizes that the kernel gave.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_region_page_size(region: *const Region) -> usize {
    value(0, || Ok(REGIONS.find(region)?.region.page_size().bytes().0 as usize))
}

/// The backing that the memory is reserved on, for example "hugetlb:2MiB"; NULL for an invalid handle. Valid
/// until the region is released.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_region_backing(region: *const Region) -> *const c_char {
    value(ptr::null(), || Ok(REGIONS.find(region)?.backing.as_ptr()))
}

/// The number of preferred backings that were not available; 0 for an invalid handle.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_region_fallbacks(region: *const Region) -> usize {
    value(0, || Ok(REGIONS.find(region)?.fallbacks.len()))
}

/// The backing of a fallback, by index from 0 in the order of the list; NULL if there is none. Valid until
/// the region is released.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_region_fallback_backing(
    region: *const Region,
    index: usize,
) -> *const c_char {
    value(ptr::null(), || Ok(REGIONS.find(region)?.fallback(index)?.0.as_ptr()))
}

/// Why the backing of a fallback was not available; NULL if there is none. Valid until the region is
/// released.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_region_fallback_cause(
    region: *const Region,
    index: usize,
) -> *const c_char {
    value(ptr::null(), || Ok(REGIONS.find(region)?.fallback(index)?.1.as_ptr()))
}

/// The coverage of a region: its resident bytes by page size, as the kernel reports them.
///
/// pages: an array of capacity items; receives an item for each page size with resident bytes, the smallest
/// first. The first item is for base pages and includes smaller transparent huge pages (mTHP), which this
/// reading does not distinguish; it is present even with 0 bytes. 8 items suffice for all known machines.
/// count: receives the number of items, even if capacity is less.
///
/// Pages under migration (compaction) do not count as resident; the next reading has them.
///
/// HUGEWISE_UNKNOWN if the kernel does not report the coverage; HUGEWISE_FAILED with EINVAL (an argument is
/// wrong) or ERANGE (capacity is too small). pages and count are then undefined, except for count with
/// ERANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn hugewise_region_coverage(
    region: *const Region,
    pages: *mut PageBytes,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    status(|| {
        let held = REGIONS.find(region)?;
        // SAFETY: guaranteed by the caller.
        unsafe { describe(pages, capacity, count, || Ok((held.region.coverage(), held.base_size))) }
    })
}

/// Like hugewise_region_coverage(), for all base pages that hold one of len bytes from start on, in any
/// memory of this process. Also reads /proc/self/smaps, whose cost grows with the memory of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn hugewise_coverage(
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
            Ok((coverage::of(addresses, &sizes), sizes.base))
        };
        // SAFETY: guaranteed by the caller.
        unsafe { describe(pages, capacity, count, read) }
    })
}

/// # Safety
/// `pages` is NULL or an array of `capacity` items; `count` is NULL or writable.
unsafe fn describe(
    pages: *mut PageBytes,
    capacity: usize,
    count: *mut usize,
    read: impl FnOnce() -> Result<(Reading<Coverage>, PageSize), Failure>,
) -> Result<(), Failure> {
    // SAFETY: guaranteed by the caller.
    let count = unsafe { OutputPointer::new(count, "count") }?;
    // SAFETY: guaranteed by the caller.
    let pages = unsafe { arguments::array(pages, capacity, "pages") }?;
    let (coverage, base_size) = read()?;
    let found = by_page_size(&coverage, base_size)?;
    count.write(found.len());
    let room = pages.get_mut(..found.len()).ok_or_else(|| {
        Failure::new(libc::ERANGE, format!("capacity is {capacity}, but {} items are needed", found.len()))
    })?;
    room.copy_from_slice(&found);
    Ok(())
}

/// Asked once, because the page sizes do not change until the next boot; again, if the kernel did not answer.
fn page_sizes() -> Result<Cow<'static, PageSizes>, Failure> {
    static SIZES: OnceLock<PageSizes> = OnceLock::new();
    if let Some(sizes) = SIZES.get() {
        return Ok(Cow::Borrowed(sizes));
    }
    let sizes = PageSizes::of_this_process()
        .map_err(|why| Failure::new(libc::ENODATA, format!("the base page size is unknown: {why}")))?;
    if sizes.default_hugetlb.is_none() && !sizes.hugetlb.is_empty() {
        return Ok(Cow::Owned(sizes));
    }
    Ok(Cow::Borrowed(SIZES.get_or_init(|| sizes)))
}

fn by_page_size(coverage: &Reading<Coverage>, base_size: PageSize) -> Result<Vec<PageBytes>, Failure> {
    let coverage = match coverage {
        Reading::Known(coverage) => coverage,
        Reading::Unknown { unknown } => return Err(Failure::unknown(unknown)),
    };
    let huge: Bytes = coverage.huge.values().copied().sum();
    let mut sizes = BTreeMap::from([(base_size, coverage.resident.saturating_sub(huge))]);
    sizes.extend(coverage.huge.iter().map(|(size, bytes)| (*size, *bytes)));
    Ok(sizes.iter().map(|(size, bytes)| PageBytes { page_size: size.bytes().0, bytes: bytes.0 }).collect())
}

/// Releases a region: its memory, its handle, and all strings returned for it.
///
/// If another thread is in a call on this region, the memory is released at the end of that call. The program
/// must ensure that no thread uses the memory any more.
///
/// Returns HUGEWISE_FAILED with EINVAL for an invalid handle, also for one already released: handles are
/// never reused. With another error, the kernel refused to unmap the memory: its pages are released, and its
/// addresses stay in use until the program ends.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hugewise_region_release(region: *mut Region) -> c_int {
    status(|| {
        // By several threads if no call is running; otherwise the last call releases it.
        if let Some(held) = Arc::into_inner(REGIONS.take(region)?) {
            if let Some(Stopped::Refused { error, .. }) = held.region.release(None).stopped {
                let code = error.raw_os_error().unwrap_or(libc::EIO);
                return Err(Failure::new(code, format!("the region could not be unmapped: {error}")));
            }
        }
        Ok(())
    })
}
