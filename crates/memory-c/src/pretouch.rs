//! Populating memory, and releasing a part of a region.

#![allow(unsafe_code)]
// The docs are the header's, for C programmers.
#![allow(clippy::missing_safety_doc)]

use crate::{
    arguments::{self, OutputPointer, VersionedOutput, addresses},
    error::{Failure, status},
    region::{REGIONS, Region},
};
use hugewise_linux::{sys::parallel_range::Span, units::Bytes};
use hugewise_memory::{
    Stopped,
    pretouch::{self, Pretouch, Progress, Way},
};
use std::{
    ffi::{c_int, c_void},
    num::NonZeroUsize,
    ops::ControlFlow,
    ptr,
};

/// Populate if the kernel can, otherwise touch.
pub const WAY_ANY: u32 = 0;

/// MADV_POPULATE_WRITE (Linux 5.14): an error if no page is available.
pub const WAY_POPULATE: u32 = 1;

/// A byte of each page is read and written back: the kernel kills the process if no page is available.
pub const WAY_TOUCH: u32 = 2;

/// Value of a field that the kernel does not report.
pub const UNKNOWN_COUNT: u64 = u64::MAX;

/// Options of a pre-touch. Set struct_size and the fields that differ from the default, all others to zero:
/// hugewise_pretouch_options options = {.struct_size = sizeof options, .threads = 2};
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PretouchOptions {
    /// sizeof(hugewise_pretouch_options).
    pub struct_size: u64,
    /// Bytes that a thread populates at a time; 0: chosen by the library.
    pub chunk: u64,
    /// Number of threads; 0: one per usable CPU.
    pub threads: u32,
    /// HUGEWISE_WAY_ANY, HUGEWISE_WAY_POPULATE or HUGEWISE_WAY_TOUCH.
    pub way: u32,
    /// Called on the calling thread after each chunk, with the number of bytes done and in total; NULL: no
    /// calls. A return value other than 0 ends the work. It may call any function of this library and must
    /// return: no exception, no longjmp, no pthread_exit. Cancellation of the thread is disabled until the call
    /// has returned.
    pub progress: Option<unsafe extern "C" fn(context: *mut c_void, done: u64, wanted: u64) -> c_int>,
    /// First argument of progress.
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

/// The result of a pre-touch. Set struct_size before the call:
/// hugewise_pretouched touched = {.struct_size = sizeof touched};
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pretouched {
    /// sizeof(hugewise_pretouched).
    pub struct_size: u64,
    /// Bytes of all pages that hold a byte of the memory.
    pub wanted: u64,
    /// Bytes of all finished chunks; more may be populated.
    pub done: u64,
    /// The chunk size used, in bytes.
    pub chunk: u64,
    /// The largest page size possible in the memory, in bytes.
    pub page_size: u64,
    /// Wall time, in nanoseconds.
    pub elapsed_ns: u64,
    /// Minor page faults of the threads.
    pub minor_faults: u64,
    /// Major page faults of the threads.
    pub major_faults: u64,
    /// Page faults of all processes on the machine during that time that got no transparent huge page;
    /// HUGEWISE_UNKNOWN_COUNT if the kernel has no such counter.
    pub thp_fallbacks: u64,
    /// Number of threads.
    pub threads: u32,
    /// HUGEWISE_WAY_POPULATE or HUGEWISE_WAY_TOUCH.
    pub way: u32,
}

/// The sizes of the structs in their first version, with which a program may have been compiled.
const FIRST_OPTIONS: usize = size_of::<PretouchOptions>();
const FIRST_PRETOUCHED: usize = size_of::<Pretouched>();

/// Populates all pages that hold one of len bytes of a region, from offset on, with several threads. The
/// contents are kept, and other threads may use the memory during the call.
///
/// options: NULL for the defaults.
/// pretouched: the result, also if the work ended early; may be NULL.
///
/// HUGEWISE_FAILED with EINVAL (an argument is wrong, or reaches beyond the region), E2BIG (options of a
/// later version), ENOMEM (out of memory, out of pages of the pool, or a limit is reached), ECANCELED
/// (progress ended the work), or another error of the kernel. Pages populated before the failure stay.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn hugewise_region_pretouch(
    region: *const Region,
    offset: usize,
    len: usize,
    options: *const PretouchOptions,
    pretouched: *mut Pretouched,
) -> c_int {
    status(|| {
        let held = REGIONS.find(region)?;
        let pages = held.region().pages_holding(held.range(offset, len)?);
        // SAFETY: pages of the region, which lives as long as `held`.
        let span = unsafe { Span::in_use(pages) };
        // SAFETY: guaranteed by the caller.
        unsafe {
            carry_out(options, pretouched, |how, progress| {
                Ok(held.region().pretouch_span(span, how, progress))
            })
        }
    })
}

/// Like hugewise_region_pretouch(), for any memory of this process, which must be readable and writable
/// during the whole call. Also reads /proc/self/smaps, whose cost grows with the memory of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn hugewise_pretouch(
    start: *mut c_void,
    len: usize,
    options: *const PretouchOptions,
    pretouched: *mut Pretouched,
) -> c_int {
    status(|| {
        let addresses = addresses(start, len)?;
        // SAFETY: guaranteed by the caller.
        let span = unsafe { Span::in_use(addresses) };
        // SAFETY: guaranteed by the caller.
        unsafe {
            carry_out(options, pretouched, |how, progress| {
                pretouch::span(span, how, progress)
                    .map_err(|why| Failure::argument(format!("start, len: {why}")))
            })
        }
    })
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
    // SAFETY: guaranteed by the caller.
    let options = unsafe { arguments::copy_versioned(options, FIRST_OPTIONS, "options") }?;
    // SAFETY: guaranteed by the caller.
    let place = unsafe { VersionedOutput::new(pretouched, FIRST_PRETOUCHED, "pretouched") }?;
    let how = Pretouch {
        threads: NonZeroUsize::new(options.threads as usize),
        chunk: (options.chunk > 0).then_some(Bytes(options.chunk)),
        way: way(options.way)?,
    };
    let mut progress = |progress: Progress| {
        let Some(callback) = options.progress else { return ControlFlow::Continue(()) };
        // SAFETY: the caller's function, with the caller's context.
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
        _ => Err(Failure::argument(format!("options->way is {way}: valid are 0, 1 and 2"))),
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
        thp_fallbacks: done.thp_fallbacks.known().copied().unwrap_or(UNKNOWN_COUNT),
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
            // The error of the kernel for an empty pool.
            Some(libc::EFAULT) => libc::ENOMEM,
            Some(code) => code,
            None => libc::EIO,
        },
    };
    Failure::new(code, format!("{done} of {wanted} done: {stopped}"))
}

/// Releases the whole pages in len bytes of a region, from offset on, to the kernel or the pool: their
/// contents are lost, and they read as zero. Pages partly outside of the range stay, except for the last page
/// of the region. The memory stays reserved; hugewise_region_pretouch() populates it again. Other parts may
/// be used at the same time.
///
/// If the kernel does not keep the pages of a pool reserved for the region (most newer kernels do), other
/// processes may take them. Touching such memory when the pool is empty kills the process (SIGBUS);
/// hugewise_region_pretouch() returns an error instead. Releasing pages of a pool needs Linux 5.18.
///
/// given_back: the number of bytes released, also if the work ended early; may be NULL.
///
/// HUGEWISE_FAILED with EINVAL (an argument is wrong, reaches beyond the region, or the kernel cannot release
/// such pages), or another error of the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn hugewise_region_decommit(
    region: *const Region,
    offset: usize,
    len: usize,
    given_back: *mut u64,
) -> c_int {
    status(|| {
        let held = REGIONS.find(region)?;
        let pages = held.region().pages_within(held.range(offset, len)?);
        let place = match given_back.is_null() {
            true => None,
            // SAFETY: guaranteed by the caller.
            false => Some(unsafe { OutputPointer::new(given_back, "given_back") }?),
        };
        // SAFETY: pages of the region, which lives as long as `held`; the caller asked to discard their
        // contents.
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
