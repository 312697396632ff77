//! Memory made present, and a part of it given back.

#![allow(unsafe_code)]
// The text is that of the header, for C programmers, to whom it is no news.
#![allow(clippy::missing_safety_doc)]

use crate::{
    arguments::{self, GrownPlace, Place},
    error::{Failure, status},
    handles,
    region::Region,
};
use hugewise_linux::{sys::parallel_range::Span, units::Bytes};
use hugewise_memory::{
    Stopped,
    pretouch::{self, Pretouch, Progress, Way},
};
use std::{
    ffi::{c_int, c_void},
    num::NonZeroUsize,
    ops::{ControlFlow, Range},
    ptr,
};

/// The library chooses: populating where the kernel can.
pub const WAY_ANY: u32 = 0;

/// MADV_POPULATE_WRITE (Linux 5.14): where no page can be had, that is an error.
pub const WAY_POPULATE: u32 = 1;

/// A byte of each page is written back: where no page can be had, the kernel kills the process.
pub const WAY_TOUCH: u32 = 2;

/// In place of a number: the kernel did not say.
pub const UNKNOWN: u64 = u64::MAX;

/// How to make memory present. Set struct_size, what you want to choose, and all else to zero:
/// hugewise_pretouch_options options = {.struct_size = sizeof options, .threads = 2};
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PretouchOptions {
    /// sizeof(hugewise_pretouch_options).
    pub struct_size: u64,
    /// How much a thread does at a time, in bytes; 0: the library chooses.
    pub chunk: u64,
    /// How many threads; 0: as many as CPUs may be used.
    pub threads: u32,
    /// HUGEWISE_WAY_ANY, HUGEWISE_WAY_POPULATE or HUGEWISE_WAY_TOUCH.
    pub way: u32,
    /// Called from time to time, on the calling thread, with the bytes that are done and those that are
    /// wanted; NULL: nobody is called. What it returns ends the work if it is not 0. It may call any
    /// function of this library, and must return: no exception, no longjmp.
    pub progress: Option<unsafe extern "C" fn(context: *mut c_void, done: u64, wanted: u64) -> c_int>,
    /// Handed to progress.
    pub context: *mut c_void,
}

impl Default for PretouchOptions {
    fn default() -> PretouchOptions {
        PretouchOptions {
            struct_size: size_of::<PretouchOptions>() as u64,
            chunk: 0,
            threads: 0,
            way: WAY_ANY,
            progress: None,
            context: ptr::null_mut(),
        }
    }
}

/// What was done. Set struct_size before the call:
/// hugewise_pretouched touched = {.struct_size = sizeof touched};
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pretouched {
    /// sizeof(hugewise_pretouched).
    pub struct_size: u64,
    /// The bytes of all pages that hold a byte of the memory.
    pub wanted: u64,
    /// Those of all chunks that were done to their end; more may be present.
    pub done: u64,
    /// The chunk that was used, in bytes.
    pub chunk: u64,
    /// The largest page there may be, in bytes.
    pub page_size: u64,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// Page faults of the threads that needed no disk.
    pub minor_faults: u64,
    /// Page faults of the threads that did.
    pub major_faults: u64,
    /// Page faults that wanted a transparent huge page and got none, of the whole machine in that time;
    /// HUGEWISE_UNKNOWN where the kernel does not say.
    pub thp_fallbacks: u64,
    /// Threads that worked.
    pub threads: u32,
    /// HUGEWISE_WAY_POPULATE or HUGEWISE_WAY_TOUCH, whichever was used.
    pub way: u32,
}

/// The sizes that the structs had at first: a program may have been compiled with them.
const FIRST_OPTIONS: usize = size_of::<PretouchOptions>();
const FIRST_PRETOUCHED: usize = size_of::<Pretouched>();

/// Makes len bytes of a region present from offset on, contents kept, by several threads: all pages that
/// hold one of these bytes. The memory may be used meanwhile.
///
/// options: NULL: the library chooses.
/// pretouched: what was done, also where it failed on the way; may be NULL.
///
/// HUGEWISE_FAILED with EINVAL (an argument is wrong, or reaches beyond the region), E2BIG (options of a
/// later version), ENOMEM (the memory, the pool or a limit ran out), ECANCELED (progress said so), or
/// what else the kernel answered. What was made present before that stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugewise_region_pretouch(
    region: *const Region,
    offset: usize,
    len: usize,
    options: *const PretouchOptions,
    pretouched: *mut Pretouched,
) -> c_int {
    status(|| {
        let held = handles::find(region)?;
        let pages = held.region().pages_holding(held.range(offset, len)?);
        // SAFETY: pages of the region, which stays as long as it is held here.
        let span = unsafe { Span::in_use(pages) };
        // SAFETY: the caller answers for both.
        unsafe {
            carry_out(options, pretouched, |how, progress| {
                Ok(held.region().pretouch_span(span, how, progress))
            })
        }
    })
}

/// The same for any memory of this process. It must be readable and writable, and stay so during the
/// call. Its mappings are looked up first, in /proc/self/smaps: that takes longer the more memory the
/// process has, and hugewise_region_pretouch() does without it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugewise_pretouch(
    start: *mut c_void,
    len: usize,
    options: *const PretouchOptions,
    pretouched: *mut Pretouched,
) -> c_int {
    status(|| {
        let addresses = addresses(start, len)?;
        // SAFETY: the caller answers for it.
        let span = unsafe { Span::in_use(addresses) };
        // SAFETY: the caller answers for both.
        unsafe {
            carry_out(options, pretouched, |how, progress| {
                pretouch::span(span, how, progress)
                    .map_err(|why| Failure::argument(format!("start, len: {why}")))
            })
        }
    })
}

/// Memory of the caller's.
pub(crate) fn addresses(start: *const c_void, len: usize) -> Result<Range<u64>, Failure> {
    if start.is_null() {
        return Err(Failure::argument("start is NULL"));
    }
    if len == 0 {
        return Err(Failure::argument("len is 0"));
    }
    let first = start.expose_provenance();
    let end = first
        .checked_add(len)
        .ok_or_else(|| Failure::argument(format!("len {len} is beyond every address")))?;
    Ok(first as u64..end as u64)
}

/// # Safety
/// `options` and `pretouched` are NULL, or structs that begin with their size.
unsafe fn carry_out(
    options: *const PretouchOptions,
    pretouched: *mut Pretouched,
    work: impl FnOnce(
        &Pretouch,
        &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<pretouch::Pretouched, Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller answers for it.
    let options = unsafe { arguments::grown(options, FIRST_OPTIONS, "options") }?;
    // SAFETY: the caller answers for it.
    let place = unsafe { GrownPlace::new(pretouched, FIRST_PRETOUCHED, "pretouched") }?;
    let how = Pretouch {
        threads: NonZeroUsize::new(options.threads as usize),
        chunk: (options.chunk > 0).then_some(Bytes(options.chunk)),
        way: way(options.way)?,
    };
    let mut progress = |progress: Progress| {
        let Some(callback) = options.progress else { return ControlFlow::Continue(()) };
        // SAFETY: a function of the caller's, called with the context that it gave.
        match unsafe { callback(options.context, progress.done.0, progress.total.0) } {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    };
    let done = work(&how, &mut progress)?;
    if let Some(place) = place {
        place.write(&seen_by_c(&done));
    }
    match &done.stopped {
        None => Ok(()),
        Some(stopped) => Err(failure(stopped, done.done, done.wanted)),
    }
}

fn way(way: u32) -> Result<Option<Way>, Failure> {
    match way {
        WAY_ANY => Ok(None),
        WAY_POPULATE => Ok(Some(Way::Populate)),
        WAY_TOUCH => Ok(Some(Way::Touch)),
        _ => Err(Failure::argument(format!("options->way is {way}: there are 0, 1 and 2"))),
    }
}

fn seen_by_c(done: &pretouch::Pretouched) -> Pretouched {
    Pretouched {
        struct_size: size_of::<Pretouched>() as u64,
        wanted: done.wanted.0,
        done: done.done.0,
        chunk: done.chunk.0,
        page_size: done.page_size.bytes().0,
        elapsed_ns: u64::try_from(done.elapsed.as_nanos()).unwrap_or(u64::MAX),
        minor_faults: done.minor_faults,
        major_faults: done.major_faults,
        thp_fallbacks: done.thp_fallbacks.known().copied().unwrap_or(UNKNOWN),
        threads: u32::try_from(done.threads).unwrap_or(u32::MAX),
        way: match done.way {
            Way::Populate => WAY_POPULATE,
            Way::Touch => WAY_TOUCH,
        },
    }
}

fn failure(stopped: &Stopped, done: Bytes, wanted: Bytes) -> Failure {
    let code = match stopped {
        Stopped::Cancelled => libc::ECANCELED,
        Stopped::Refused { error, .. } => match error.raw_os_error() {
            // So the kernel says that a pool is empty.
            Some(libc::EFAULT) => libc::ENOMEM,
            Some(code) => code,
            None => libc::EIO,
        },
    };
    Failure::new(code, format!("{done} of {wanted} done: {stopped}"))
}

/// Gives the whole pages in len bytes of a region, from offset on, back to the kernel or the pool: what
/// was in them is lost, and they read as zero. A page that lies in it only in part stays as it is, but
/// for the last of the region. The memory stays reserved; hugewise_region_pretouch() makes it present
/// again. Other parts may be used meanwhile.
///
/// Where the kernel does not keep the pages of a pool reserved for the region (newer ones do, mostly),
/// others may take them then. To touch such memory when the pool has none left kills the process
/// (SIGBUS): make it present by hugewise_region_pretouch(), which is an error then. For pools it needs
/// Linux 5.18.
///
/// given_back: how many bytes were given back, also where it failed on the way; may be NULL.
///
/// HUGEWISE_FAILED with EINVAL (an argument is wrong, reaches beyond the region, or the kernel cannot do
/// that), or what else the kernel answered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugewise_region_decommit(
    region: *const Region,
    offset: usize,
    len: usize,
    given_back: *mut u64,
) -> c_int {
    status(|| {
        let held = handles::find(region)?;
        let pages = held.region().pages_within(held.range(offset, len)?);
        let place = match given_back.is_null() {
            true => None,
            // SAFETY: the caller answers for it.
            false => Some(unsafe { Place::new(given_back, "given_back") }?),
        };
        // SAFETY: pages of the region, which stays as long as it is held here; the caller wants to
        // lose what is in them.
        let span = unsafe { Span::in_use(pages) };
        let released = held.region().decommit_span(span, None);
        if let Some(place) = place {
            place.write(released.done.0);
        }
        match &released.stopped {
            None => Ok(()),
            Some(stopped) => Err(failure(stopped, released.done, released.wanted)),
        }
    })
}
