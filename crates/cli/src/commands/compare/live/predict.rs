//! Predicts the time of a transition, from the time of the same calls on memory of this program.

use std::time::{Duration, Instant};

use hugewise_linux::{
    hugepages::base_page,
    reading::Reading,
    root::Root,
    sys::{
        memory::Mapping,
        pidfd::{self, Adviser},
    },
    units::{Bytes, PageSize},
};

/// Huge pages that are moved for the prediction.
const PAGES: u64 = 16;

/// Predicted times of the transitions; they do not include pauses, and the cost of a busy process.
#[derive(Clone, Copy, Debug)]
pub struct Transitions {
    pub to_huge: Duration,
    pub to_base: Duration,
}

/// Predicts the transitions of `pages` huge pages.
pub fn transitions(root: &Root, size: PageSize, pages: usize) -> Reading<Transitions> {
    measure(root, size)
        .map(|of_page| {
            let pages = u32::try_from(pages).unwrap_or(u32::MAX);
            Transitions { to_huge: of_page.to_huge * pages, to_base: of_page.to_base * pages }
        })
        .into()
}

/// The times of one huge page.
fn measure(root: &Root, size: PageSize) -> std::io::Result<Transitions> {
    let page = size.bytes().0;
    let base =
        base_page::read(root).into_result().map_err(|reason| std::io::Error::other(reason.to_string()))?;
    let mut memory = Mapping::anonymous(Bytes((PAGES + 1) * page))?;
    memory.bytes_mut().iter_mut().step_by(base.bytes().0 as usize).for_each(|byte| *byte = 1);
    let adviser = Adviser::of(pidfd::open(std::process::id())?);
    let first = memory.address().next_multiple_of(page);
    let timed = |call: &dyn Fn(u64) -> std::io::Result<()>| -> std::io::Result<Duration> {
        let begin = Instant::now();
        (0..PAGES).try_for_each(|n| call(first + n * page))?;
        Ok(begin.elapsed() / PAGES as u32)
    };
    let to_huge = timed(&|start| adviser.collapse(&(start..start + page)))?;
    let to_base = timed(&|start| adviser.split(start, base))?;
    Ok(Transitions { to_huge, to_base })
}
