//! Causes of messages of JVMs about pools.

use hugewise_linux::action::Action;

use super::{Answer, Candidate, Candidates};
use crate::messages::{
    Family,
    capture::Requested,
    explainer::{EPERM, Explainer},
};

/// First version that tries SysV shared memory only with -XX:+UseSHM.
const JDK_WITHOUT_SHM_FALLBACK: u32 = 17;

impl Explainer<'_> {
    /// Causes of a heap of ZGC that could not be committed.
    pub(super) fn heap_commit(&self) -> Answer {
        let facts = &self.known;
        let message = &self.found.message;
        let bytes = message.bytes.map_or_else(|| "a part".to_owned(), |bytes| bytes.to_string());
        let happened = match message.family {
            Family::HeapLowered => format!(
                "ZGC could not commit its whole heap and continues with {bytes} less than -Xmx: an OutOfMemoryError can follow, \
                 and Runtime.maxMemory() still reports -Xmx."
            ),
            _ => "ZGC could not commit memory for its heap.".to_owned(),
        };
        let mut grow = self.fill_pool();
        grow.change += "; or request THP instead: -XX:+UseTransparentHugePages with /sys/kernel/mm/transparent_hugepage/enabled at \
                        madvise and shmem_enabled at advise; or run without -XX:+UseLargePages";
        let pool = Candidate::new(
            "With -XX:+UseLargePages the pool is too small: unlike other collectors, ZGC takes pool pages as the heap grows, and \
             does not fall back to base pages",
            grow,
        )
        .unless(facts.requested_pool() == Some(false), "the JVM requested no pages of a pool");
        let memory = Candidate::new(
            "memory on base pages or THP was exhausted: memory and swap, the limit of the control group, or the commit limit",
            Action::new("Reduce -Xmx to the memory that is available, or add memory")
                .by("grep -E 'Mem|Swap|Commit' /proc/meminfo"),
        )
        .unless(facts.requested_pool() == Some(true), "the JVM requested pages of a pool")
        .unless(
            self.lowered_to_nothing() && facts.requested.is_none_or(|requested| requested == Requested::Explicit),
            "the heap was lowered to 0M: not even its first 2MiB could be committed, although the JVM itself had started",
        );
        Candidates {
            happened,
            causes: vec![pool, memory],
            question: Action::new(
                "Was the JVM started with -XX:+UseLargePages? Its log shows 'Large Page Support: Enabled (Explicit)' with \
                 -Xlog:gc+init. Give the command line: hugewise explain LOG -- java …",
            )
            .by("jcmd PID VM.flags"),
        }
        .answer()
    }

    /// Whether this log says that a heap was lowered to nothing.
    fn lowered_to_nothing(&self) -> bool {
        self.log
            .found
            .iter()
            .any(|one| one.message.family == Family::HeapLowered && one.text.contains(" to 0M("))
    }

    /// Causes of a refusal of SysV shared memory.
    pub(super) fn shared_memory(&self) -> Answer {
        let facts = &self.known;
        let denied = self.found.message.errno == Some(EPERM);
        let happened = match denied {
            true => {
                "SysV shared memory on huge pages was refused: it needs root, CAP_IPC_LOCK, or membership in the group \
                     vm.hugetlb_shm_group, and the JVM has none of them."
            }
            false => "The pool was empty or too small for a region, which was tried as SysV shared memory.",
        };
        if !denied {
            return Answer::certain(
                format!("{happened} JDK 8 and 11 try it last, even without -XX:+UseSHM."),
                self.fill_pool(),
            );
        }
        let asked = facts.has_flag("UseSHM");
        let requested = Candidate::new(
            "The JVM was started with -XX:+UseSHM",
            Action::new("Use -XX:+UseHugeTLBFS, which needs no privilege, instead of -XX:+UseSHM; or permit SHM_HUGETLB to a group \
                         of the JVM")
            .by("sudo sysctl vm.hugetlb_shm_group=GID"),
        )
        .unless(asked == Some(false), "the command line has no -XX:+UseSHM");
        let last = Candidate::new(
            "JDK 8 or 11 tries it last, after no page of the pool was free: the pool was empty, and the privilege is missing; pages \
             of the pool need no privilege",
            self.fill_pool(),
        )
        .unless(asked == Some(true), "the command line has -XX:+UseSHM")
        .unless(
            facts.jdk.is_some_and(|jdk| jdk >= JDK_WITHOUT_SHM_FALLBACK),
            "this version of the JDK tries it only with -XX:+UseSHM",
        );
        Candidates {
            happened: happened.to_owned(),
            causes: vec![requested, last],
            question: Action::new(
                "Is -XX:+UseSHM in the command line of the JVM or in JAVA_TOOL_OPTIONS? If not, the pool is empty",
            )
            .by("grep HugePages /proc/meminfo"),
        }
        .answer()
    }
}
