//! Giving memory back: a part of a region while the rest is used, or all of it.

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
    threads::{self, Crew, Stopped},
};

/// What was given back.
#[derive(Debug)]
pub struct Released {
    /// The bytes of all whole pages that were to be given back.
    pub wanted: Bytes,
    /// Those that were.
    pub done: Bytes,
    /// Threads that worked.
    pub threads: usize,
    /// How long it took.
    pub elapsed: Duration,
    /// Why not all was given back.
    pub stopped: Option<Stopped>,
}

impl Region {
    /// Gives back the whole pages of the region's size in `range` (offsets in bytes), so that no huge
    /// page is split: their contents are lost, they read as zero, and [`Region::pretouch`] makes them present again.
    ///
    /// Pages of a pool go back to it. Shared memory gives up its claim to them, too: others may take
    /// them meanwhile, and then only a pre-touch tells without being killed that there is none left.
    /// For pools it needs Linux 5.18.
    pub fn decommit(&mut self, range: Range<usize>, threads: Option<NonZeroUsize>) -> Released {
        let pages = self.pages_within(range);
        let shared = self.is_shared();
        give_back(&self.target(), pages, shared, threads)
    }

    /// The same while others use the rest of it: for a span of [`Region::pages_within`] the range.
    pub fn decommit_span(&self, span: Span<'_>, threads: Option<NonZeroUsize>) -> Released {
        let pages = span.addresses();
        give_back(&self.pages().target(span), pages, self.is_shared(), threads)
    }

    fn is_shared(&self) -> bool {
        matches!(self.backing(), Backing::Shm(_))
    }

    /// Gives back all of it: by several threads on base pages, where each page is work; huge pages are
    /// given back faster than threads are started.
    pub fn release(mut self, threads: Option<NonZeroUsize>) -> Released {
        let begin = Instant::now();
        let length = self.bytes().len();
        let mut released = if self.is_huge() {
            let all = self.pages_within(0..length);
            let wanted = Bytes(all.end - all.start);
            Released { wanted, done: wanted, threads: 1, elapsed: Duration::ZERO, stopped: None }
        } else {
            self.decommit(0..length, threads)
        };
        drop(self);
        released.elapsed = begin.elapsed();
        released
    }
}

fn give_back(
    target: &Target<'_>,
    pages: Range<u64>,
    shared: bool,
    threads: Option<NonZeroUsize>,
) -> Released {
    let begin = Instant::now();
    let crew = Crew::for_memory(pages.start, threads);
    let chunks = Chunks::cut(pages, target.grain.bytes(), None, crew.threads);
    let give_back = |chunk| match shared {
        true => target.span.discard_shared(chunk),
        false => target.span.discard(chunk),
    };
    let worked = threads::each(&chunks, &crew, &give_back, &mut |_| ControlFlow::Continue(()));
    Released {
        wanted: chunks.length(),
        done: worked.done,
        threads: worked.threads,
        elapsed: begin.elapsed(),
        stopped: worked.stopped,
    }
}
