//! Releases memory: a part of a region in use, or the whole region.

use std::{
    num::NonZeroUsize,
    ops::{ControlFlow, Range},
    time::{Duration, Instant},
};

use hugewise_linux::{hugepages::backing::Backing, sys::parallel_range::Span, units::Bytes};

use crate::{
    chunks::Chunks,
    region::Region,
    target::Target,
    threads::{self, Stopped, Workers},
};

/// The result of a release.
#[derive(Debug)]
pub struct Released {
    /// Bytes of all whole pages in the range.
    pub wanted: Bytes,
    /// Bytes released.
    pub done: Bytes,
    /// Number of threads.
    pub threads: usize,
    /// Wall time.
    pub elapsed: Duration,
    /// Why the work ended early; `None` if it did not.
    pub stopped: Option<Stopped>,
}

impl Region {
    /// Releases the whole pages in `range`, given as byte offsets, so that no huge page is split. Their
    /// contents are lost; they read as zero, and [`Region::pretouch`] populates them again.
    ///
    /// Hugetlb pages return to the pool, which needs Linux 5.18. Shared memory also loses its reservation:
    /// other processes may take the pages. If none is left, the first touch kills the process;
    /// [`Region::pretouch`] with [`Way::Populate`](crate::pretouch::Way::Populate) reports an error instead.
    pub fn decommit(&mut self, range: Range<usize>, threads: Option<NonZeroUsize>) -> Released {
        let pages = self.pages_within(range);
        let shared = self.is_shared();
        release_pages(&self.target(), pages, shared, threads)
    }

    /// Like [`Region::decommit`], while other threads use the rest. `span` must come from
    /// [`Region::pages_within`].
    pub fn decommit_span(&self, span: Span<'_>, threads: Option<NonZeroUsize>) -> Released {
        let pages = span.addresses();
        release_pages(&self.pages.target(span), pages, self.is_shared(), threads)
    }

    fn is_shared(&self) -> bool {
        matches!(self.backing(), Backing::Shm(_))
    }

    /// Releases the whole region: on base pages by several threads, on huge pages by one, because this takes
    /// less time than starting threads. If the kernel refuses to unmap it, its pages are released, and its addresses stay.
    pub fn release(mut self, threads: Option<NonZeroUsize>) -> Released {
        let begin = Instant::now();
        let length = self.bytes().len();
        let all = self.pages_within(0..length);
        let wanted = Bytes(all.end - all.start);
        let threads = match self.backing() {
            Backing::Base => self.decommit(0..length, threads).threads,
            _ => 1,
        };
        let stopped = self.unmap().err().map(|(mut left, error)| {
            // The addresses stay, without memory.
            left.decommit(0..length, NonZeroUsize::new(1));
            Stopped::Refused { addresses: all, error }
        });
        let done = if stopped.is_none() { wanted } else { Bytes::ZERO };
        Released { wanted, done, threads, elapsed: begin.elapsed(), stopped }
    }
}

fn release_pages(
    target: &Target<'_>,
    pages: Range<u64>,
    shared: bool,
    threads: Option<NonZeroUsize>,
) -> Released {
    let begin = Instant::now();
    let workers = Workers::for_memory(pages.start, threads);
    let chunks = Chunks::cut(pages, target.grain.bytes(), None, workers.threads);
    let release_pages = |chunk| match shared {
        true => target.span.discard_shared(chunk),
        false => target.span.discard(chunk),
    };
    let worked = threads::each(&chunks, &workers, &release_pages, &mut |_| ControlFlow::Continue(()));
    Released {
        wanted: chunks.length(),
        done: worked.done,
        threads: worked.threads,
        elapsed: begin.elapsed(),
        stopped: worked.stopped,
    }
}
