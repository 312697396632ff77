//! Trying how many pages of a pool a process may touch: limits of control groups above a container are not visible in
//! it, and end a process that exceeds them with SIGBUS.

use std::{io, path::Path, time::Duration};

use crate::{
    cgroup::{ABOVE, CgroupLimits, Limit},
    hugepages::pools::Pool,
    reading::Reading,
    root::Root,
    sys::{
        aside::{Aside, Deadline},
        memory::Mapping,
    },
    units::{Bytes, PageSize, Pages},
};

/// Longest trial, in which some gigabytes can be zeroed.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Bytes of a number of pages in a message.
const NUMBER_BYTES: usize = 8;

/// Why a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All pages could be touched.
    Complete,
    /// A touch ended the child (SIGBUS).
    Limit,
    /// The kernel refused a mapping: the pool, or a limit on reserved pages, has no more.
    Refused,
    TimeUp,
}

/// Touches up to `most` pages in a child process, which then gives them back; returns the number touched.
fn touch(size: PageSize, most: Pages) -> io::Result<(Pages, End)> {
    let mut child = Aside::start(&[], |answers| {
        let mut held = Vec::new();
        for number in 1..=most.0 {
            let mut page = Mapping::hugetlb(size.bytes(), size)?;
            page.bytes_mut()[0] = 1;
            held.push(page);
            answers.send(&number.to_ne_bytes(), None)?;
        }
        Ok(())
    })?;
    let deadline = Deadline::of_reading(TIME_LIMIT);
    let mut pages = Pages(0);
    let end = loop {
        match child.receive(NUMBER_BYTES, &deadline) {
            Ok(message) => {
                pages = Pages(message.bytes.try_into().map_or(pages.0, u64::from_ne_bytes));
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => return Err(error),
                io::ErrorKind::TimedOut => break End::TimeUp,
                io::ErrorKind::UnexpectedEof => break End::Limit,
                _ => break End::Refused,
            },
        }
    };
    Ok((pages, if pages >= most { End::Complete } else { end }))
}

/// Replaces the limits on touched pages by what a trial shows, where limits above the visible control groups may exist.
/// As many pages of each pool as `needed` are tried, within its free pages and the visible limits. Returns whether a
/// limit was replaced.
pub fn try_hidden_limits(
    root: &Root,
    limits: &mut CgroupLimits,
    pools: &[Pool],
    needed: &dyn Fn(PageSize) -> Pages,
) -> bool {
    if !root.is_live() || limits.hugetlb_group.known().is_some_and(|group| !group.hidden_above) {
        return false;
    }
    let mount = limits.hugetlb_group.known().map_or("sys/fs/cgroup".into(), |group| group.mount.clone());
    let place = mount.join(ABOVE);
    let mut is_replaced = false;
    for limits in &mut limits.hugetlb {
        let size = limits.page_size;
        let Some(pool) = pools.iter().find(|pool| pool.page_size == size && pool.node.is_none()) else {
            continue;
        };
        let visible = limits.touch.known().and_then(Option::as_ref).and_then(|limit| limit.left.known());
        let visible = visible.map_or(pool.available(), |left| left.whole_pages(size));
        let wanted = needed(size).min(pool.available()).min(visible);
        if wanted == Pages(0) {
            continue;
        }
        let unknown = |why: String| {
            Reading::unknown(format!("limits of control groups above this container are not visible; {why}"))
        };
        limits.touch = match touch(size, wanted) {
            Ok((_, End::Complete | End::Refused)) => continue,
            Ok((pages, End::Limit)) => Reading::Known(Some(tried(size, pages, &place))),
            Ok((pages, End::TimeUp)) => {
                unknown(format!("{pages} pages of {size} could be touched within {} s", TIME_LIMIT.as_secs()))
            }
            Err(error) => unknown(format!("touching a page failed: {error}")),
        };
        is_replaced = true;
    }
    is_replaced
}

/// A limit that only a trial has shown.
fn tried(size: PageSize, pages: Pages, place: &Path) -> Limit {
    let bytes = pages * size;
    Limit { bytes, used: Reading::Known(Bytes::ZERO), left: Reading::Known(bytes), file: place.to_owned() }
}
