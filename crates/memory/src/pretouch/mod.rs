//! Pre-touch: makes every page of a range present, by several threads, before it is used.
//!
//! The work is cut so that no huge page is shared by two threads, nor, on base pages, what one page
//! table maps: threads that meet in one page wait for each other, and all but one zero it in vain
//! (JDK-8259380). Where the kernel can, pages are populated (`MADV_POPULATE_WRITE`), which needs no
//! page fault for each and gets THP whole (JDK-8315923); otherwise a byte of each is written back.

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
    region::Region,
    target::Target,
    threads::{self, Crew},
};

pub use crate::threads::Stopped;

/// How to make memory present; what is not said is chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pretouch {
    /// How many threads; as many as CPUs may be used if not said.
    pub threads: Option<NonZeroUsize>,
    /// How much a thread does at a time. Made smaller where it would leave a thread without work, and
    /// larger where it would split a page.
    pub chunk: Option<Bytes>,
    /// By which means; populating if not said, where the kernel can.
    pub way: Option<Way>,
}

/// A means to make pages present. Both keep contents, and memory in use may be used meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// `MADV_POPULATE_WRITE` (Linux 5.14). Where no page can be had, that is an error.
    Populate,
    /// A byte of each page written back. Where no page can be had, the kernel kills the process.
    Touch,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes in chunks that are done.
    pub done: Bytes,
    /// Bytes in all chunks.
    pub total: Bytes,
}

/// What was done.
#[derive(Debug)]
pub struct Pretouched {
    /// The bytes of all pages of the range.
    pub wanted: Bytes,
    /// The bytes of all chunks that were done to their end; more may be present.
    pub done: Bytes,
    /// Threads that worked.
    pub threads: usize,
    /// The chunk that was used.
    pub chunk: Bytes,
    /// The largest page there may be in the range.
    pub page_size: PageSize,
    /// The means that was used.
    pub way: Way,
    /// How long it took, reading the coverage left out.
    pub elapsed: Duration,
    /// Page faults of the threads that needed no disk; populating a page may count as one.
    pub minor_faults: u64,
    /// Page faults of the threads that did.
    pub major_faults: u64,
    /// What the pages really are, read from this process's page table.
    pub coverage: Reading<Coverage>,
    /// Page faults that wanted a THP and got none (`thp_fault_fallback`), of the whole machine in that
    /// time: those of this range are among them.
    pub thp_fallbacks: Reading<u64>,
    /// Why not all was done.
    pub stopped: Option<Stopped>,
}

impl Pretouched {
    /// Bytes made present in a second; nothing where no time passed.
    #[must_use]
    pub fn bytes_per_second(&self) -> Option<f64> {
        let seconds = self.elapsed.as_secs_f64();
        (seconds > 0.0).then(|| self.done.0 as f64 / seconds)
    }
}

impl Region {
    /// Makes every page of the region present, contents kept. `progress` is called on this thread from
    /// chunk to chunk, and may end the work, which leaves the rest of the region as it was.
    pub fn pretouch(
        &mut self,
        how: &Pretouch,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Pretouched {
        pretouch(&self.target(), how, progress)
    }

    /// The same for a part of it that others use meanwhile: a span of [`Region::pages_holding`] it.
    pub fn pretouch_span(
        &self,
        span: Span<'_>,
        how: &Pretouch,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Pretouched {
        pretouch(&self.pages().target(span), how, progress)
    }
}

/// Makes every page present that holds a byte of any memory of this process, contents kept.
///
/// An error where its mappings could not be read.
pub fn span(
    span: Span<'_>,
    how: &Pretouch,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Pretouched, String> {
    let sizes = PageSizes::read(&Root::live())?;
    Ok(pretouch(&Target::of(span, &sizes)?, how, progress))
}

fn pretouch(
    target: &Target<'_>,
    how: &Pretouch,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Pretouched {
    let way = how.way.unwrap_or(if parallel_range::can_populate() { Way::Populate } else { Way::Touch });
    let pages = target.pages();
    let crew = Crew::for_memory(pages.start, how.threads);
    let chunks = Chunks::cut(pages, target.grain.bytes(), how.chunk, crew.threads);
    let total = chunks.length();
    let fallbacks = || Reading::from(VmStat::read(&Root::live()));
    let before = fallbacks();
    let begin = Instant::now();
    let worked = threads::each(
        &chunks,
        &crew,
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
