//! Selects the backing with which a program is started, from readings and the JVM's answers.

mod malloc;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use hugewise_jvm::collector::Collector;
use hugewise_linux::{
    c_library::{Allocator, CLibrary},
    cgroup::CgroupLimits,
    hugepages::{backing::Backing, page_sizes::PageSizes, pools::Pool},
    reading::Reason,
    units::{Bytes, PageSize, Pages},
};
use serde::{Deserialize, Serialize};

use crate::{
    decide,
    malloc::{Malloc, MallocSettings, OffHeap},
    pool_availability::{self, Available, Policy},
};

/// Upper bound of the memory that malloc takes from a pool before the JVM allocates its heap.
const MALLOC_AT_START: Bytes = Bytes(64 << 20);

/// The requested backings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackingRequest {
    /// `None` is `auto`.
    pub backing: Option<Backing>,
    /// Backing of malloc'd memory; `None` if it stays unchanged.
    pub off_heap: Option<OffHeap>,
    /// Means by which malloc gets huge pages.
    pub malloc: Malloc,
    /// Fail instead of falling back.
    pub strict: bool,
}

/// Options and pool pages of one backing for a launch line, or why the JVM does not support it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackingSupport {
    pub backing: Backing,
    /// JVM options for the backing, or why there are none.
    pub options: Result<Vec<String>, String>,
    /// Upper bound of the pool pages by size.
    pub pages: Vec<(PageSize, Pages)>,
}

/// Values that a JVM reports for a launch line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JvmAnswers {
    /// Version of the JVM, such as `17.0.15`.
    pub version: String,
    /// Garbage collector, such as `G1`.
    pub collector: String,
    /// Maximum heap size.
    pub max_heap: Bytes,
    /// Backings in the order of preference, the requested one first.
    pub offers: Vec<BackingSupport>,
}

/// Current state of the machine and the program.
#[derive(Clone, Debug)]
pub struct SelectionFacts {
    pub sizes: PageSizes,
    /// The pools of the whole machine.
    pub pools: Vec<Pool>,
    /// Limits of the control groups.
    pub cgroup: CgroupLimits,
    /// THP mode (`enabled`) for the PMD size; `None` if it could not be read.
    pub thp: Option<String>,
    /// `shmem_enabled` for the PMD size; `None` if it could not be read.
    pub shared_thp: Option<String>,
    /// Whether the program may create SysV segments on huge pages; `None` if that is unknown.
    pub may_use_huge_segments: Option<bool>,
    /// Number of CPUs on which the program may run.
    pub processors: usize,
    /// The program's C library, or why it is unknown.
    pub c_library: Result<CLibrary, Reason>,
    /// The malloc that the program is linked with, if it is known to be none of its C library's.
    pub allocator: Option<Allocator>,
    /// Path of a jemalloc that the program can load.
    pub jemalloc: Option<PathBuf>,
    /// Whether the program is setuid or has file capabilities: its loader then ignores variables for malloc.
    pub privileged: bool,
    /// Why its memory cannot be collapsed by another process; `None` if it can.
    pub collapse_obstacle: Option<String>,
}

/// The selected backings, and how the program is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingSelection {
    /// Selected backing.
    pub backing: Backing,
    pub options: Vec<String>,
    /// Means by which malloc gets huge pages; `None` if it stays unchanged.
    pub malloc: Option<MallocSettings>,
    /// Whether the program is started with `PR_SET_THP_DISABLE`.
    pub disable_thp: bool,
    /// Whether the observer collapses memory outside of the heap once it is resident.
    pub collapse: bool,
    /// The selection and its reason, as one line of text.
    pub why: String,
    /// Why the kernel may kill the program; `None` if no limit is known that its heap exceeds.
    pub warning: Option<String>,
}

/// Selects the backings of a launch line, or without `answers` those of a program that is not a JVM.
///
/// An error means that the requested backing is not available and that a fallback is not allowed.
pub fn choose(
    wanted: &BackingRequest,
    answers: Option<&JvmAnswers>,
    facts: &SelectionFacts,
) -> Result<BackingSelection, Reason> {
    match answers {
        Some(answers) => for_java(wanted, answers, facts),
        None => for_other(wanted, facts),
    }
}

fn for_java(
    wanted: &BackingRequest,
    answers: &JvmAnswers,
    facts: &SelectionFacts,
) -> Result<BackingSelection, Reason> {
    let mut refused = Vec::new();
    let slack = if wanted.off_heap == Some(OffHeap::Hugetlb) { MALLOC_AT_START } else { Bytes::ZERO };
    for offer in &answers.offers {
        let good = match &offer.options {
            Err(reason) => Reason::err(reason),
            Ok(options) => facts.can_give(offer, &answers.collector, slack).map(|why| (options, why)),
        };
        let (options, why) = match good {
            Ok(good) => good,
            Err(reason) => {
                refused.push(format!("{} is not available: {reason}", offer.backing));
                continue;
            }
        };
        let falls_back = match wanted.backing {
            Some(backing) => offer.backing != backing,
            None => offer.backing == Backing::Base,
        };
        if falls_back && wanted.strict {
            return Reason::err(format!("{} (--strict)", refused.join("; ")));
        }
        let warning = facts.beyond_memory_limit(offer.backing, answers.max_heap);
        if let Some(warning) = warning.as_ref().filter(|_| wanted.strict) {
            return Reason::err(format!("{warning} (--strict)"));
        }
        let taken = if offer.backing.is_explicit() { offer.pages.clone() } else { Vec::new() };
        let (malloc, malloc_why) = match facts.off_heap(wanted, &taken) {
            Some(Ok((means, why))) => (Some(means), format!("; {why}")),
            Some(Err(reason)) if wanted.strict => return Reason::err(format!("{reason} (--strict)")),
            Some(Err(reason)) => (None, format!("; malloc'd memory is unchanged: {reason}")),
            None => (None, String::new()),
        };
        let selected = format!("backing {}{why}", offer.backing);
        let why = [vec![selected], refused].concat().join("; ") + &malloc_why;
        let base_was_asked = wanted.backing == Some(Backing::Base);
        return Ok(BackingSelection {
            backing: offer.backing,
            options: options.clone(),
            collapse: facts.collapses(wanted.off_heap, malloc.as_ref()),
            disable_thp: base_was_asked && wanted.off_heap != Some(OffHeap::Thp),
            malloc,
            why,
            warning,
        });
    }
    Reason::err(refused.join("; "))
}

fn for_other(wanted: &BackingRequest, facts: &SelectionFacts) -> Result<BackingSelection, Reason> {
    let named = wanted.backing.and_then(Backing::named_size);
    let off_heap = match wanted.backing {
        Some(Backing::Shm(_)) => {
            return Reason::err("only a JVM can use SysV shared memory; try --backing hugetlb");
        }
        Some(Backing::Base) => wanted.off_heap,
        Some(Backing::Hugetlb(_)) => wanted.off_heap.or(Some(OffHeap::Hugetlb)),
        Some(Backing::Thp) | None => wanted.off_heap.or(Some(OffHeap::Thp)),
    };
    let base = BackingSelection {
        backing: Backing::Base,
        options: Vec::new(),
        malloc: None,
        disable_thp: wanted.backing == Some(Backing::Base) && off_heap != Some(OffHeap::Thp),
        collapse: false,
        why: "backing base: transparent huge pages are disabled for the program".to_owned(),
        warning: None,
    };
    let auto = match wanted.backing.is_none() && wanted.off_heap.is_none() {
        true if facts.glibc().is_ok() => {
            "; auto takes no pool for a program that is not a JVM; --backing hugetlb does"
        }
        true => "; no pool can be taken for its malloc",
        false => "",
    };
    match facts.off_heap(&BackingRequest { off_heap, ..*wanted }, &[]) {
        None => Ok(base),
        Some(Ok((means, why))) => Ok(BackingSelection {
            backing: match off_heap {
                Some(OffHeap::Hugetlb) => Backing::Hugetlb(named),
                _ => Backing::Thp,
            },
            collapse: facts.collapses(off_heap, Some(&means)),
            malloc: Some(means),
            why: format!("{why}{auto}"),
            ..base
        }),
        Some(Err(reason)) if wanted.strict => Reason::err(format!("{reason} (--strict)")),
        Some(Err(reason)) => Ok(BackingSelection {
            disable_thp: false,
            why: format!("the program is started unchanged: {reason}{auto}"),
            ..base
        }),
    }
}

impl SelectionFacts {
    /// Whether this backing is available now, with the reason.
    fn can_give(&self, offer: &BackingSupport, collector: &str, slack: Bytes) -> Result<String, Reason> {
        if let Some(missing) = self.sizes.missing(offer.backing) {
            return Reason::err(missing);
        }
        if matches!(offer.backing, Backing::Shm(_)) && self.may_use_huge_segments == Some(false) {
            return Reason::err(
                "SysV segments on huge pages need CAP_IPC_LOCK on the machine itself, or the group of \
                 vm.hugetlb_shm_group",
            );
        }
        match offer.backing {
            Backing::Base => Ok(String::new()),
            Backing::Thp => {
                self.check_thp()?;
                // If `shared_thp` is unknown, the kernel has no such setting or it is not readable: try THP.
                let shared_off = matches!(self.shared_thp.as_deref(), Some("never" | "deny"));
                if collector == Collector::Z.name() && shared_off {
                    return Reason::err("ZGC's heap is shared memory, and shmem_enabled is never or deny");
                }
                Ok(String::new())
            }
            Backing::Hugetlb(_) | Backing::Shm(_) if offer.pages.is_empty() => {
                let size = self.sizes.huge_page_of(offer.backing).or(self.sizes.default_hugetlb);
                let (available, why) = size.map_or((Pages(0), String::new()), |size| self.available(size));
                if available == Pages(0) {
                    return Reason::err("the pool has no page left");
                }
                Ok(format!(": its demand is unknown, and {why}"))
            }
            Backing::Hugetlb(_) | Backing::Shm(_) => {
                let mut reported = Vec::new();
                for (size, pages) in &offer.pages {
                    let extra = if Some(*size) == self.sizes.default_hugetlb { slack } else { Bytes::ZERO };
                    let needed = *pages + extra.pages_needed(*size);
                    let (available, why) = self.available(*size);
                    if available < needed {
                        return Reason::err(format!("it needs {needed} pages of {size}, and {why}"));
                    }
                    reported.push(format!("{needed} pages of {size}, and {why}"));
                }
                Ok(format!(": it needs {}", reported.join("; ")))
            }
        }
    }

    /// Why the kernel may kill a JVM with a heap of up to `max_heap`: its control group counts the heap, unless it
    /// is on pool pages.
    fn beyond_memory_limit(&self, backing: Backing, max_heap: Bytes) -> Option<String> {
        let is_counted = !backing.is_explicit() || self.cgroup.memory_counts_hugetlb.known() == Some(&true);
        let reason =
            is_counted.then(|| decide::beyond_memory_limit(&self.cgroup, "its heap", max_heap))??;
        Some(format!("{reason}; set a smaller -Xmx, or raise the limit"))
    }

    fn check_thp(&self) -> Result<(), Reason> {
        match self.sizes.missing(Backing::Thp) {
            Some(missing) => Reason::err(missing),
            None if self.thp.as_deref() == Some("never") => {
                Reason::err("transparent huge pages are switched off (enabled is never)")
            }
            None => Ok(()),
        }
    }

    /// Pages of one size that are available now in the pool and within the limits of the control groups, with
    /// the reason.
    fn available(&self, size: PageSize) -> (Pages, String) {
        let pool = self.pools.iter().find(|pool| pool.page_size == size && pool.node.is_none());
        let Some(pool) = pool else { return (Pages(0), format!("there is no pool of {size} pages")) };
        // Surplus pages do not count: the kernel may fail to allocate them.
        let Available { pages, bounded_by, unknown_limit } =
            pool_availability::available(pool, &self.cgroup.hugetlb, Policy::AtTouch);
        let why = match (bounded_by, unknown_limit) {
            (Some(_), _) => format!("the control group allows {pages} more"),
            (None, Some(file)) => {
                format!("{pages} are available; the usage below the limit /{} is unknown", file.display())
            }
            (None, None) => format!("{pages} are available"),
        };
        (pages, why)
    }
}
