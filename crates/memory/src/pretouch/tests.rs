use std::{error::Error, thread};

use hugewise_linux::sys::{
    memory::{Advice, Mapping},
    pagemap,
};
use proptest::prelude::*;

use super::*;
use crate::region;

type TestResult<T = ()> = Result<T, Box<dyn Error>>;

const LENGTH: usize = 24 << 20;

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Resident bytes of these addresses; `None` if the kernel has no PAGEMAP_SCAN.
fn resident(addresses: std::ops::Range<u64>) -> Option<Bytes> {
    let pagemap = std::fs::File::open("/proc/self/pagemap").ok()?;
    pagemap::scan(&pagemap, addresses).ok().map(|scan| scan.present)
}

/// Memory with some non-zero bytes, and a copy of its contents.
fn marked(advice: Advice, seed: u64) -> TestResult<(Mapping, Vec<u8>)> {
    let mut memory = Mapping::anonymous(Bytes(LENGTH as u64))?;
    memory.advise(0..LENGTH, advice)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut contents = vec![0; LENGTH];
    for place in (0..20).map(|_| random.usize(0..LENGTH)) {
        memory.bytes_mut()[place] = 1;
        contents[place] = 1;
    }
    Ok((memory, contents))
}

/// A pre-touch with random arguments.
#[derive(Clone, Debug)]
struct Case {
    from: usize,
    length: usize,
    how: Pretouch,
    advice: Advice,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let way = prop_oneof![Just(Way::Populate), Just(Way::Touch)];
    let advice = prop_oneof![Just(Advice::NoHugePage), Just(Advice::HugePage)];
    let chunk = proptest::option::of((9u32..28).prop_map(|log2| Bytes((1 << log2) + 1)));
    (0..LENGTH, 1..LENGTH, 1usize..9, chunk, way, advice, any::<u64>()).prop_map(
        |(from, length, threads, chunk, way, advice, seed)| Case {
            from,
            length: length.min(LENGTH - from),
            how: Pretouch { threads: NonZeroUsize::new(threads), chunk, way: Some(way) },
            advice,
            seed,
        },
    )
}

fn check(case: &Case, stop_after: Option<Bytes>) -> TestResult {
    if case.how.way == Some(Way::Populate) && !parallel_range::can_populate() {
        return Ok(());
    }
    let (mut memory, contents) = marked(case.advice, case.seed)?;
    let span = Span::new(&mut memory.bytes_mut()[case.from..case.from + case.length]);
    let addresses = span.addresses();
    let mut stop = |progress: Progress| match stop_after {
        Some(bytes) if progress.done >= bytes => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let done = super::span(span, &case.how, &mut stop)?;
    assert!(done.wanted >= Bytes(case.length as u64), "{done:?}");
    assert_eq!(done.done == done.wanted, done.stopped.is_none(), "{done:?}");
    assert!(matches!(done.stopped, None | Some(Stopped::Cancelled)), "{done:?}");
    assert!(done.coverage.known().is_some(), "{done:?}");
    let whole = addresses.start / 4096 * 4096..addresses.end.next_multiple_of(4096);
    // Pages under migration for compaction are not present for a moment.
    let all_there = || resident(whole.clone()).is_none_or(|present| present >= done.done);
    let settled = (0..60_000).any(|_| {
        all_there() || {
            thread::sleep(Duration::from_millis(2));
            false
        }
    });
    assert!(settled, "{:?} of {done:?}", resident(whole.clone()));
    assert!(memory.bytes() == contents, "contents changed");
    if done.stopped.is_some() {
        // A second call populates the rest.
        let span = Span::new(&mut memory.bytes_mut()[case.from..case.from + case.length]);
        assert!(super::span(span, &case.how, &mut go_on)?.stopped.is_none());
        assert!(memory.bytes() == contents, "contents changed");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_page_is_present_and_contents_are_kept(case in cases()) {
        check(&case, None).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }

    #[test]
    fn being_stopped_leaves_a_range_that_can_be_used(case in cases(), after in 0..LENGTH as u64) {
        check(&case, Some(Bytes(after))).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
}

#[test]
fn each_base_page_is_made_once() -> TestResult {
    let sizes = PageSizes::read(&Root::live())?;
    for way in [Way::Populate, Way::Touch] {
        let mut region =
            region::reserve(Bytes(64 << 20), &[hugewise_linux::hugepages::backing::Backing::Base], &sizes)?;
        let how = Pretouch { threads: NonZeroUsize::new(4), chunk: Some(Bytes(4096)), way: Some(way) };
        let first = region.pretouch(&how, &mut go_on);
        let pages = Bytes(64 << 20).whole_pages(sizes.base).0;
        // The threads' own stacks add some page faults.
        assert!((pages..pages + 64).contains(&first.minor_faults), "{first:?}");
        let again = region.pretouch(&how, &mut go_on);
        assert!(again.minor_faults < 64, "{again:?}");
    }
    Ok(())
}

#[test]
fn released_pages_are_zero_and_the_rest_is_kept() -> TestResult {
    let sizes = PageSizes::read(&Root::live())?;
    for backing in
        [hugewise_linux::hugepages::backing::Backing::Base, hugewise_linux::hugepages::backing::Backing::Thp]
    {
        if sizes.missing(backing).is_some() {
            continue;
        }
        let mut region = region::reserve(Bytes(16 << 20), &[backing], &sizes)?;
        region.bytes_mut().fill(1);
        let page = region.page_size().bytes().0 as usize;
        // No whole pages at the ends: the neighbours' bytes must stay.
        let released = region.decommit(1..2 * page + 1, NonZeroUsize::new(2));
        assert!(released.stopped.is_none(), "{released:?}");
        assert_eq!(released.done, region.page_size().bytes());
        assert!(region.bytes()[page..2 * page].iter().all(|byte| *byte == 0));
        assert!(region.bytes()[..page].iter().chain(&region.bytes()[2 * page..]).all(|byte| *byte == 1));
        assert_eq!(region.release(None).done, Bytes(16 << 20));
    }
    Ok(())
}

#[test]
fn memory_that_is_not_there_is_refused() -> TestResult {
    let mut memory = Mapping::anonymous(Bytes(1 << 20))?;
    let addresses = Span::new(memory.bytes_mut()).addresses();
    drop(memory);
    // The populate call fails on unmapped pages; nothing is read or written.
    let error = Span::new(&mut []).populate(addresses).err().ok_or("populated")?;
    assert_eq!(error.raw_os_error(), Some(12));
    Ok(())
}
