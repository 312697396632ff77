//! Pool memory through the library: populated, released, and refused without a SIGBUS.

use std::{error::Error, num::NonZeroUsize, ops::ControlFlow};

use hugewise_changes::{journal::Journal, pool_growth};
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    root::Root,
    settings::Setting,
    units::{Bytes, Pages},
};
use hugewise_memory::{
    pretouch::{Pretouch, Pretouched},
    region::{self, Region},
};

use crate::{
    TestResult, Trial,
    inspect::{grow_pool, journal},
    needs::Need::{Pool, Root as NeedsRoot},
    trial,
};

const PAGE: usize = 2 << 20;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("memory: pages of a pool are populated and released", &[NeedsRoot, Pool], given_back),
        trial("memory: SysV shared memory is populated and released", &[NeedsRoot, Pool], shared_memory),
        trial("memory: an empty pool is refused without a SIGBUS", &[NeedsRoot, Pool], an_empty_pool),
    ]
}

fn pretouch(region: &mut Region) -> Pretouched {
    // Two threads, and chunks smaller than a page, so that both would populate the same pages.
    let how = Pretouch { threads: NonZeroUsize::new(2), chunk: Some(Bytes(4096)), way: None };
    region.pretouch(&how, &mut |_| ControlFlow::Continue(()))
}

fn free() -> Result<Pages, Box<dyn Error>> {
    Ok(pool_growth::pool(&Root::live(), "2m".parse()?)?.free)
}

fn reserve(backing: Backing, pages: usize) -> Result<Region, Box<dyn Error>> {
    let sizes = PageSizes::read(&Root::live())?;
    Ok(region::reserve(Bytes((pages * PAGE) as u64 - 1), &[backing], &sizes)?)
}

fn given_back() -> TestResult {
    taken_and_given_back(Backing::Hugetlb(Some("2m".parse()?)))
}

fn shared_memory() -> TestResult {
    taken_and_given_back(Backing::Shm(Some("2m".parse()?)))
}

fn taken_and_given_back(backing: Backing) -> TestResult {
    let mut journal = journal()?;
    grow_pool(&mut journal, 8)?;
    let before = free()?;
    let mut region = reserve(backing, 8)?;
    let done = pretouch(&mut region);
    assert!(done.stopped.is_none(), "{done:?}");
    assert_eq!((done.done, done.chunk), (Bytes(8 * PAGE as u64), Bytes(PAGE as u64)));
    // One page fault per page: no page was populated twice.
    assert!((8..64).contains(&done.minor_faults), "{done:?}");
    let coverage = done.coverage.known().ok_or("no reading")?;
    assert_eq!(coverage.share_on("2m".parse()?), Some(1.0), "{coverage:?}");
    assert_eq!(free()?, before.saturating_sub(Pages(8)));
    region.bytes_mut().fill(1);
    let released = region.decommit(PAGE / 2..5 * PAGE, None);
    assert!(released.stopped.is_none(), "{released:?}");
    assert_eq!(free()?, before.saturating_sub(Pages(4)), "{released:?}");
    assert_eq!((region.bytes()[PAGE - 1], region.bytes()[5 * PAGE]), (1, 1));
    assert!(pretouch(&mut region).stopped.is_none());
    assert_eq!(region.bytes()[PAGE], 0);
    let released = region.release(None);
    assert!(released.stopped.is_none(), "{released:?}");
    assert_eq!(free()?, before);
    Ok(())
}

fn an_empty_pool() -> TestResult {
    let mut journal = journal()?;
    grow_pool(&mut journal, 4)?;
    let mut region = reserve(Backing::Shm(Some("2m".parse()?)), 4)?;
    assert!(pretouch(&mut region).stopped.is_none());
    assert!(region.decommit(0..4 * PAGE, None).stopped.is_none());
    // The pool is emptied, and the region's own reservation is used up.
    take_all(&mut journal)?;
    let done = pretouch(&mut region);
    let stopped = done.stopped.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(stopped.contains("the pool has no free page"), "{done:?}");
    assert_eq!(done.done, Bytes::ZERO);
    Ok(())
}

fn take_all(journal: &mut Journal) -> TestResult {
    journal.set(Setting::Pool { page_size: "2m".parse()?, node: None }, "0")?;
    Ok(())
}
