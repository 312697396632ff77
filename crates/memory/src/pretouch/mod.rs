//! Pre-touch: populates every page of a range with several threads, before the memory is used.
//!
//! No two threads share a huge page or, on base pages, the memory of one page table: threads that fault in
//! the same page wait for each other, and all but one zero it for nothing (JDK-8259380). Pages are populated
//! by `MADV_POPULATE_WRITE` where the kernel has it, which needs no page fault per page and gets whole THPs
//! (JDK-8315923); otherwise a byte of each page is written back.

#[cfg(test)]
mod tests;

use std::{
    num::NonZeroUsize,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    pages::coverage::Coverage,
    proc::vmstat::VmStat,
    reading::Reading,
    root::Root,
    sys::parallel_range::{self, Span},
    units::{Bytes, PageSize},
};
use serde::{Deserialize, Serialize};

use crate::{
    chunks::Chunks,
    coverage,
    region::Region,
    target::Target,
    threads::{self, Workers},
};

pub use crate::threads::Stopped;

/// Options of a pre-touch; `None` is the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pretouch {
    /// Number of threads; by default the number of usable CPUs.
    pub threads: Option<NonZeroUsize>,
    /// Bytes per chunk. Reduced if a thread would have no work, and increased if two threads would share a
    /// huge page or a page table.
    pub chunk: Option<Bytes>,
    /// How pages are populated; by default [`Way::Populate`] where the kernel has it.
    pub way: Option<Way>,
}

/// How pages are populated. Both keep the contents, and the memory may be used at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// `MADV_POPULATE_WRITE` (Linux 5.14). An error if no page is available.
    Populate,
    /// A byte of each page is read and written back. If no page is available, the kernel kills the process.
    Touch,
}

/// The progress of a pre-touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes in finished chunks.
    pub done: Bytes,
    /// Bytes in all chunks.
    pub total: Bytes,
}

/// The result of a pre-touch.
#[derive(Debug)]
pub struct Pretouched {
    /// Bytes of all pages of the range.
    pub wanted: Bytes,
    /// Bytes of all finished chunks; more may be populated.
    pub done: Bytes,
    /// Number of threads.
    pub threads: usize,
    /// The chunk size used.
    pub chunk: Bytes,
    /// The largest page size possible in the range.
    pub page_size: PageSize,
    /// How pages were populated.
    pub way: Way,
    /// Wall time, without reading the coverage.
    pub elapsed: Duration,
    /// Minor page faults of the threads; a populate call may count as one.
    pub minor_faults: u64,
    /// Major page faults of the threads.
    pub major_faults: u64,
    /// The coverage, read from the page table.
    pub coverage: Reading<Coverage>,
    /// Page faults of all processes on the machine during that time that got no THP (`thp_fault_fallback`);
    /// includes those of this range.
    pub thp_fallbacks: Reading<u64>,
    /// Why the work ended early; `None` if it did not.
    pub stopped: Option<Stopped>,
}

impl Pretouched {
    /// Populated bytes per second; `None` if the elapsed time is 0.
    #[must_use]
    pub fn bytes_per_second(&self) -> Option<f64> {
        let seconds = self.elapsed.as_secs_f64();
        (seconds > 0.0).then(|| self.done.0 as f64 / seconds)
    }
}

impl Region {
    /// Populates every page of the region and keeps the contents. `progress` is called on this thread after
    /// each chunk and may end the work; the rest of the region then stays as it is.
    pub fn pretouch(
        &mut self,
        how: &Pretouch,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Pretouched {
        pretouch(&self.target(), how, progress)
    }

    /// Like [`Region::pretouch`], for a part of the region while other threads use the rest. `span` must come
    /// from [`Region::pages_holding`].
    pub fn pretouch_span(
        &self,
        span: Span<'_>,
        how: &Pretouch,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Pretouched {
        pretouch(&self.pages.target(span), how, progress)
    }
}

/// Populates every page that holds a byte of `span`, any memory of this process, and keeps the contents.
///
/// Fails if the mappings have a gap, or cannot be read and the kernel does not populate ([`Way::Populate`]), which needs
/// no reading: the kernel refuses a gap.
pub fn span(
    span: Span<'_>,
    how: &Pretouch,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Pretouched, String> {
    let sizes = PageSizes::of_this_process().map_err(|error| error.to_string())?;
    let populates = how.way != Some(Way::Touch) && parallel_range::can_populate();
    let target = match coverage::mappings(&span.addresses()) {
        Ok(vmas) => Target::of(span, &vmas, &sizes)?,
        Err(_) if populates => Target::unread(span, &sizes),
        Err(why) => return Err(why.into()),
    };
    Ok(pretouch(&target, how, progress))
}

fn pretouch(
    target: &Target<'_>,
    how: &Pretouch,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Pretouched {
    let way = how.way.unwrap_or(if parallel_range::can_populate() { Way::Populate } else { Way::Touch });
    let pages = target.pages();
    let workers = Workers::for_memory(pages.start, how.threads);
    let chunks = Chunks::cut(pages, target.grain.bytes(), how.chunk, workers.threads);
    let total = chunks.length();
    let fallbacks = || Reading::from(VmStat::read(&Root::live()));
    let before = fallbacks();
    let begin = Instant::now();
    let worked = threads::each(
        &chunks,
        &workers,
        &|chunk| match way {
            Way::Populate => target.span.populate(chunk),
            Way::Touch => {
                target.span.touch(chunk, target.step.bytes());
                Ok(())
            }
        },
        &mut |done| progress(Progress { done, total }),
    );
    let elapsed = begin.elapsed();
    let thp_fallbacks = fallbacks().and_then(|after| {
        let before = before.known().ok_or("/proc/vmstat could not be read")?;
        after.growth(before, "thp_fault_fallback").ok_or("/proc/vmstat has no thp_fault_fallback")
    });
    Pretouched {
        wanted: total,
        done: worked.done,
        threads: worked.threads,
        chunk: chunks.size(),
        page_size: target.page_size,
        way,
        elapsed,
        minor_faults: worked.faults.minor,
        major_faults: worked.faults.major,
        coverage: target.coverage(),
        thp_fallbacks,
        stopped: worked.stopped,
    }
}
