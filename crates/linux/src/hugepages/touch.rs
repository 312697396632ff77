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

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Pages that could be touched.
    pub pages: Pages,
    /// Whether the next one could not; otherwise there were no more to try, or no time was left.
    pub is_limit: bool,
}

/// Touches up to `most` pages in a child process, which then gives them back.
pub fn touchable(size: PageSize, most: Pages) -> io::Result<Tried> {
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
    loop {
        match child.receive(NUMBER_BYTES, &deadline) {
            Ok(message) => {
                pages = Pages(message.bytes.try_into().map_or(pages.0, u64::from_ne_bytes));
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Ok(Tried { pages, is_limit: false });
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(_) => return Ok(Tried { pages, is_limit: pages < most }),
        }
    }
}

/// Replaces the limits on touched pages by what a trial shows, where limits above the visible control groups may exist.
/// At most `most` pages of each pool are tried.
pub fn try_hidden_limits(root: &Root, limits: &mut CgroupLimits, pools: &[Pool], most: Pages) {
    if !root.is_live() || limits.hugetlb_group.known().is_some_and(|group| !group.hidden_above) {
        return;
    }
    let mount = limits.hugetlb_group.known().map_or("sys/fs/cgroup".into(), |group| group.mount.clone());
    let place = mount.join(ABOVE);
    for limits in &mut limits.hugetlb {
        let size = limits.page_size;
        let Some(pool) = pools.iter().find(|pool| pool.page_size == size && pool.node.is_none()) else {
            continue;
        };
        let wanted = pool.available().min(most);
        let visible =
            limits.touch.known().and_then(Option::as_ref).and_then(|limit| limit.left.known().copied());
        if wanted == Pages(0) || visible.is_some_and(|left| left < size.bytes()) {
            continue;
        }
        match touchable(size, wanted) {
            Ok(Tried { pages, is_limit: true }) => {
                limits.touch = Reading::Known(Some(tried(size, pages, &place)))
            }
            Ok(Tried { pages, .. }) if pages >= wanted => {}
            Ok(Tried { pages, .. }) => {
                limits.touch = Reading::unknown(format!(
                    "limits of control groups above this container are not visible; {pages} pages of {size} could be \
                     touched within {} s",
                    TIME_LIMIT.as_secs()
                ));
            }
            Err(error) => {
                limits.touch = Reading::unknown(format!(
                    "limits of control groups above this container are not visible, and touching a page failed: {error}"
                ));
            }
        }
    }
}

/// A limit that only a trial has shown.
fn tried(size: PageSize, pages: Pages, place: &Path) -> Limit {
    let bytes = pages * size;
    Limit { bytes, used: Reading::Known(Bytes::ZERO), left: Reading::Known(bytes), file: place.to_owned() }
}
