//! Number of pages of a pool that are available to a new process.

use std::path::PathBuf;

use hugewise_linux::{
    cgroup::{HugetlbLimits, Limit},
    hugepages::pools::Pool,
    units::{PageSize, Pages},
};

/// Pages that count as available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Pages that a mapping can reserve: includes surplus pages, which the kernel allocates on demand up to
    /// `nr_overcommit_hugepages`, within the limits at which a mapping fails (`rsvd`).
    AtMapping,
    /// Pages that a process can certainly touch: no surplus pages, and also within the limits at which SIGBUS
    /// kills the process on touch.
    AtTouch,
}

/// The pages that a new process can get from one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    pub pages: Pages,
    /// The control group limit that determines `pages`; `None` if the pool does.
    pub bounded_by: Option<PathBuf>,
    /// A limit that does not count, because the usage of its group is unknown.
    pub unknown_limit: Option<PathBuf>,
}

/// The pages of `pool` that are available by this policy, within the limits of the caller's control group.
pub fn available(pool: &Pool, limits: &[HugetlbLimits], policy: Policy) -> Available {
    let surplus = pool.overcommit.unwrap_or_default().saturating_sub(pool.surplus);
    let pages = pool.available() + if policy == Policy::AtMapping { surplus } else { Pages(0) };
    let mut available = Available { pages, bounded_by: None, unknown_limit: None };
    for limits in limits.iter().filter(|limits| limits.page_size == pool.page_size) {
        let counting = match policy {
            Policy::AtMapping => &[&limits.reserve][..],
            Policy::AtTouch => &[&limits.touch, &limits.reserve],
        };
        for limit in counting.iter().filter_map(|limit| limit.known()?.as_ref()) {
            match left(limit, pool.page_size) {
                Some(left) if left < available.pages => {
                    (available.pages, available.bounded_by) = (left, Some(limit.file.clone()));
                }
                Some(_) => {}
                None => available.unknown_limit = Some(limit.file.clone()),
            }
        }
    }
    available
}

/// The pages that a limit still allows; `None` if the usage of its group is unknown.
pub fn left(limit: &Limit, size: PageSize) -> Option<Pages> {
    Some(limit.left.known()?.whole_pages(size))
}

#[cfg(test)]
mod tests {
    use hugewise_linux::{reading::Reading, units::Bytes};

    use super::*;

    #[test]
    fn surplus_and_limits_count_as_the_policy_says() -> Result<(), Box<dyn std::error::Error>> {
        let page_size: PageSize = "2m".parse()?;
        let pool = Pool {
            page_size,
            node: None,
            total: Pages(10),
            free: Pages(8),
            reserved: Some(Pages(2)),
            surplus: Pages(1),
            overcommit: Some(Pages(5)),
        };
        let limit = |pages: u64, used: Reading<Bytes>| {
            let file = PathBuf::from(format!("limit-{pages}"));
            let bytes = Pages(pages) * page_size;
            let left = used.clone().map(|used| bytes.saturating_sub(used));
            Reading::Known(Some(Limit { bytes, used, left, file }))
        };
        let used = |pages: u64| Reading::Known(Pages(pages) * page_size);
        let limits = [HugetlbLimits { page_size, touch: limit(4, used(1)), reserve: limit(9, used(1)) }];
        let get = |policy, limits: &[HugetlbLimits]| {
            let available = available(&pool, limits, policy);
            (available.pages.0, available.bounded_by, available.unknown_limit)
        };
        let file = |name: &str| Some(PathBuf::from(name));
        assert_eq!(get(Policy::AtTouch, &[]), (6, None, None));
        assert_eq!(get(Policy::AtMapping, &[]), (10, None, None));
        assert_eq!(get(Policy::AtMapping, &limits), (8, file("limit-9"), None));
        assert_eq!(get(Policy::AtTouch, &limits), (3, file("limit-4"), None));
        let unknown = Reading::unknown("not permitted");
        let limits = [HugetlbLimits { page_size, touch: limit(4, unknown), reserve: Reading::Known(None) }];
        assert_eq!(get(Policy::AtTouch, &limits), (6, None, file("limit-4")));
        Ok(())
    }
}
