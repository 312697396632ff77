//! Causes of messages of the kernel, of Kubernetes and of databases.

use hugewise_linux::{
    action::Action,
    units::{Bytes, PageSize},
};

use super::{Answer, Candidate, Candidates, crash::IDLE_SHARE};
use crate::messages::explainer::Explainer;

/// Size of a number of pages.
fn held_by(size: PageSize, pages: u64) -> Bytes {
    Bytes(size.bytes().0.saturating_mul(pages))
}

impl Explainer<'_> {
    /// A pool in the kernel's report that memory ran out.
    pub(super) fn out_of_memory(&self) -> Answer {
        let facts = &self.known;
        let message = &self.found.message;
        let size = self.size();
        let pages_of = size.map_or_else(|| "huge pages".to_owned(), |size| format!("pages of {size}"));
        let (free, total) = (message.got.unwrap_or_default(), message.pages.unwrap_or_default());
        let held = size.map(|size| format!(" ({})", held_by(size, total))).unwrap_or_default();
        let idle = size.map(|size| held_by(size, free)).unwrap_or_default();
        let idle_text = if idle > Bytes::ZERO { format!(" ({idle})") } else { String::new() };
        let small = facts.all_memory().is_some_and(|memory| idle.0 < memory.0 / IDLE_SHARE)
            && facts.killed.is_none_or(|killed| idle < killed);
        let state = format!("{free} of {total} pages are free");
        if facts.constraint.as_deref() == Some("MEMCG") {
            return Answer::certain(
                "Memory ran out in a control group (constraint=CONSTRAINT_MEMCG): its memory limit was exceeded, for which pages of \
                 pools do not count.",
                Action::new(
                    "Raise the limit of the control group that the report names (oom_memcg), or reduce the demand of its programs",
                ),
            );
        }
        let used = Candidate::new(
            format!(
                "all {total} {pages_of}{held} of the pool were in use, or nearly all: the pool is not idle, its pages cannot be \
                 returned while the program that uses them runs, and the other programs have only the rest of the memory"
            ),
            Action::new(
                "Reduce the demand of the killed program or of the program that uses the pool (hugewise inspect --all lists it), \
                 or add memory; do not shrink the pool below the pages in use",
            )
            .by("hugewise inspect --all"),
        )
        .unless(free > 0 && !small, &state);
        let change = "Reduce the pool to the pages that programs use or have reserved";
        let idle_pool = Candidate::new(
            format!(
                "a pool was idle: {free}{idle_text} of {total} {pages_of} were free, and only programs that request hugetlb pages \
                 can use them; free pages may be reserved for a program"
            ),
            match size {
                Some(size) => Action::new(change).by(format!("sudo hugewise apply --pool {size}=N")),
                None => Action::new(format!("{change}; hugewise plan -- java … prints the demand")),
            },
        )
        .unless(free == 0, &state)
        .unless(small, format!("{idle_text} are free: less than a twentieth of the memory, and than the killed program had"));
        Candidates {
            happened: "Memory ran out.".to_owned(),
            causes: vec![used, idle_pool],
            question: Action::new("Which pages of the pool are free and not reserved on that machine?")
                .by("grep HugePages /proc/meminfo"),
        }
        .answer()
    }

    /// Causes of a cluster without a node for a pod.
    pub(super) fn no_node(&self) -> Answer {
        let name = self.found.message.name.as_deref().unwrap_or("huge pages");
        let size = self.size().map_or_else(|| "SIZE".to_owned(), |size| size.to_string());
        let allocatable = self.known.allocatable;
        let has = allocatable.is_some_and(|bytes| bytes > Bytes::ZERO);
        let fact = |bytes: Option<Bytes>| format!("the node has {} allocatable", bytes.unwrap_or_default());
        let none = Candidate::new(
            "the pages are not reserved on the nodes, or their kubelet was not restarted since",
            Action::new(
                "Grow the pool on a node, then restart its kubelet, which reads the pools at its start only",
            )
            .by(format!("sudo hugewise apply --pool {size}=N"))
            .verified_by("kubectl describe node NODE"),
        )
        .unless(has, fact(allocatable));
        let used = Candidate::new(
            "other pods have requested the pages that the nodes have",
            Action::new("Grow the pool on a node by the pod's request and restart its kubelet, or move another pod away")
                .by("kubectl describe nodes")
                .verified_by("kubectl describe node NODE"),
        )
        .unless(allocatable == Some(Bytes::ZERO), fact(allocatable));
        Candidates {
            happened: format!("No node has enough {name} left for the pod."),
            causes: vec![none, used],
            question: Action::new(format!(
                "Is Allocatable of {name} 0 on the nodes? Then the pool is missing or the kubelet has not read it; if not, the \
                 difference to Allocated resources is too small"
            ))
            .by("kubectl describe nodes | grep -i hugepages"),
        }
        .answer()
    }

    /// Causes of shared memory of PostgreSQL that could not be mapped.
    pub(super) fn shared_buffers(&self) -> Answer {
        let setting = self.known.huge_pages.as_deref();
        let fact = format!("huge_pages is {}", setting.unwrap_or_default());
        let pool = Candidate::new(
            "with huge_pages = on, the pool or the reservation limit of the control group is too small",
            Action::new(
                "Grow the pool to the demand of the server, or set huge_pages = try, or reduce shared_buffers",
            )
            .by("hugewise plan -- postgres -D DIRECTORY"),
        )
        .unless(setting.is_some_and(|word| word != "on"), &fact);
        let memory = Candidate::new(
            "with huge_pages = try or off, memory or the commit limit is too small",
            Action::new("Reduce shared_buffers, or return idle pages of a pool; with vm.overcommit_memory=2 raise the commit limit")
                .by("grep -E 'Huge|Mem|Commit' /proc/meminfo"),
        )
        .unless(setting == Some("on"), &fact);
        Candidates {
            happened: "PostgreSQL could not map its shared memory and did not start.".to_owned(),
            causes: vec![pool, memory],
            question: Action::new(
                "Is huge_pages on in postgresql.conf? Then the pool is too small (hugewise plan -- postgres -D DIRECTORY prints \
                 the demand; huge_pages = try falls back); if it is try or off, reduce shared_buffers",
            )
            .by("grep -n huge_pages DIRECTORY/postgresql.conf"),
        }
        .answer()
    }
}
