//! Causes of pages of a pool that a program did not get.

use hugewise_linux::{action::Action, units::Bytes};

use super::{Answer, Candidate, Candidates};
use crate::messages::{
    Family,
    explainer::{ENOMEM, EPERM, Explainer},
};

/// Release that gVisor, a sandbox, reports as its kernel.
const SANDBOX_KERNEL: &str = "4.4.0";
const SANDBOX: &str = "the kernel of the text is that of a sandbox, which has no pools";

impl Explainer<'_> {
    /// Whether the facts are those of a sandbox without pools.
    pub(super) fn is_in_sandbox(&self) -> bool {
        self.known.kernel.as_deref() == Some(SANDBOX_KERNEL)
    }

    /// Memory that the message names as requested.
    fn demand(&self) -> Option<Bytes> {
        let message = &self.found.message;
        let size = self.size().map(|size| size.bytes().0);
        message.bytes.or_else(|| Some(Bytes(message.pages?.checked_mul(size?)?)))
    }

    /// Whether the known pool is that of the message.
    fn is_known_pool(&self) -> bool {
        let size = self.found.message.page_size;
        size.is_none() || self.known.page_size.is_none() || size == self.known.page_size
    }

    /// Whether the free pages suffice; `None` if the facts do not say so.
    pub(super) fn has_enough(&self) -> Option<bool> {
        let (idle, bytes) = self.known.idle().filter(|_| self.is_known_pool())?;
        Some(match self.demand() {
            Some(demand) => bytes >= demand,
            None => idle.0 > 0,
        })
    }

    /// The causes that concern the pool: no page, too few, or pages that the program may not use.
    pub(super) fn pool_causes(&self, grow: &Action) -> Vec<Candidate> {
        let facts = &self.known;
        let sandbox = self.is_in_sandbox();
        let pool = format!("the pool has {}", facts.pool().unwrap_or_default());
        let total = facts.total.filter(|_| self.is_known_pool()).map(|pages| pages.0);
        let enough = self.has_enough() == Some(true);
        let none = Candidate::new("no pages are reserved", grow.clone())
            .unless(total.is_some_and(|total| total > 0), &pool)
            .unless(sandbox, SANDBOX);
        let short = Candidate::new(
            match self.demand() {
                Some(demand) => format!("fewer pages were free than {demand} need; others are in use or reserved by other programs"),
                None => "all pages of the pool are in use or reserved by other programs, or too few are free".to_owned(),
            },
            grow.clone(),
        )
        .unless(total == Some(0), "the pool has no pages")
        .unless(enough, &pool)
        .unless(sandbox, SANDBOX);
        let mut causes = vec![none, short];
        if enough {
            // The reading of a machine is of a later time than the text.
            if self.captured.pool().is_none() {
                causes.push(Candidate::new(
                    format!(
                        "the pool was too small when the program started, and has enough pages now: {}",
                        facts.pool().unwrap_or_default()
                    ),
                    Action::new("Start the program again").verified_by("hugewise inspect PID"),
                ));
            }
            causes.push(
                Candidate::new(
                    format!(
                        "{pool}, and the program may not use them: a limit of its control group (hugetlb.SIZE.rsvd.max, \
                         hugetlb.SIZE.max), or nodes without pages"
                    ),
                    Action::new("Compare the limits of its control group and its nodes with the pool")
                        .by("cat /sys/fs/cgroup/hugetlb.*.max; grep Mems_allowed_list /proc/self/status"),
                ),
            );
        }
        if sandbox {
            causes.push(Candidate::new(
                "the program runs in a sandbox (its kernel calls itself 4.4.0, as gVisor does), which has no pools",
                Action::new("Switch huge pages off in the program, or run it with the container runtime runc"),
            ));
        }
        causes
    }

    /// The question that decides between the causes of a pool.
    fn pool_question() -> Action {
        Action::new(
            "Which pages does the pool have where the program runs, and which limits its control group?",
        )
        .by("grep Huge /proc/meminfo; cat /sys/fs/cgroup/hugetlb.*.max")
    }

    /// Causes of a pool without a usable page.
    pub(super) fn pool_empty(&self) -> Answer {
        let message = &self.found.message;
        let name = message.name.as_deref().unwrap_or_default();
        let happened = match message.family {
            Family::KindNotConfigured => {
                format!("The JVM requested {name} and could map no page of any pool.")
            }
            _ => "The JVM requested large pages and found no free page in any pool: it runs entirely on base pages, and \
                  reports no error in its exit status."
                .to_owned(),
        };
        Candidates { happened, causes: self.pool_causes(&self.fill_pool()), question: Self::pool_question() }
            .answer()
    }

    /// Causes of a region that did not get pages of a pool; `None` if no fact contradicts a pool that is too small.
    pub(super) fn pool_short(&self) -> Option<Answer> {
        let contradicted = self.has_enough() == Some(true)
            || self.is_in_sandbox()
            || self.known.total.is_some_and(|all| all.0 == 0);
        if !contradicted || !self.is_known_pool() {
            return None;
        }
        let bytes = self.demand().map_or_else(|| "a region".to_owned(), |bytes| bytes.to_string());
        Some(
            Candidates {
                happened: format!(
                    "{bytes} of the JVM did not get pages of a pool, and are entirely on smaller pages."
                ),
                causes: self.pool_causes(&self.fill_pool()),
                question: Self::pool_question(),
            }
            .answer(),
        )
    }

    /// Causes of a program without pages of a pool; `None`: those of the table of messages, which no fact contradicts.
    pub(super) fn program_pool(&self) -> Option<Answer> {
        let message = &self.found.message;
        let advice = message.advice()?;
        let happened = self.filled(advice.meaning);
        let grow = Action::new(self.filled(advice.action));
        let (others, question) = match message.speaker {
            "MySQL" if message.errno.is_some() => self.mysql_causes(),
            "QEMU" => self.qemu_causes(),
            "DPDK" if message.page_size.is_none() => self.dpdk_causes(),
            ".NET" => self.dotnet_causes(),
            _ if self.has_enough() == Some(true) || self.is_in_sandbox() => {
                (Vec::new(), Self::pool_question())
            }
            "DPDK" if !self.is_known_pool() && self.known.idle().is_some_and(|(idle, _)| idle.0 > 0) => {
                return Some(Answer::certain(
                    format!(
                        "{happened} The pool of the other size has {}: DPDK takes those.",
                        self.known.pool().unwrap_or_default()
                    ),
                    Action::new(
                        "Ignore this message; if DPDK stops, the message that follows it has the cause",
                    ),
                ));
            }
            _ => return None,
        };
        let is_of_pool = !(message.speaker == "MySQL" && message.errno != Some(ENOMEM))
            && message
                .name
                .as_deref()
                .is_none_or(|why| why.contains("allocate memory") || message.speaker != "QEMU")
            && !(message.speaker == ".NET" && self.known.requested_pool() == Some(false));
        let mut causes = if is_of_pool { self.pool_causes(&grow) } else { Vec::new() };
        causes.extend(others);
        Some(Candidates { happened, causes, question }.answer())
    }

    fn mysql_causes(&self) -> (Vec<Candidate>, Action) {
        let facts = &self.known;
        let message = &self.found.message;
        let bytes = message.bytes.unwrap_or_default();
        let locked = facts.locked_memory.is_some_and(|limit| limit.is_none_or(|limit| limit >= bytes));
        let is_old = facts
            .kernel
            .as_deref()
            .is_some_and(|kernel| kernel.starts_with("2.6.1") || kernel.starts_with("2.6.2"));
        let memlock = Action::new(
            "Set LimitMEMLOCK=infinity in the unit of mysqld, or the group vm.hugetlb_shm_group to that of mysqld",
        );
        let cause = match message.errno {
            Some(ENOMEM) => Candidate::new(
                "this old kernel answers so if RLIMIT_MEMLOCK is smaller than the buffer pool",
                memlock,
            )
            .unless(!is_old, "only kernels before 2.6.30 answer so if RLIMIT_MEMLOCK is too small")
            .unless(locked, "RLIMIT_MEMLOCK permits it"),
            Some(EPERM) => Candidate::new(
                "mysqld may not create SysV shared memory on huge pages: it is not in the group vm.hugetlb_shm_group, and RLIMIT_MEMLOCK \
                 is smaller than the buffer pool. The size of the pool is not the cause",
                memlock,
            ),
            _ => Candidate::new(
                "the segment exceeds kernel.shmmax (errno 22), or all segments exceed kernel.shmall (errno 28)",
                Action::new("Raise kernel.shmmax and kernel.shmall above the buffer pool")
                    .by("sysctl kernel.shmmax kernel.shmall"),
            ),
        };
        let question = Action::new(
            "Which kernel is it, which pages does the pool have, and what is 'Max locked memory' of mysqld?",
        )
        .by("uname -r; grep Huge /proc/meminfo; grep locked /proc/$(pidof mysqld)/limits");
        (vec![cause], question)
    }

    fn qemu_causes(&self) -> (Vec<Candidate>, Action) {
        let why = self.found.message.name.as_deref().unwrap_or_default();
        let mut causes = Vec::new();
        if why.starts_with("Permission denied") || why.starts_with("Operation not permitted") {
            causes.push(Candidate::new(
                "QEMU has no right to the folder of -mem-path: its mode, AppArmor or SELinux forbid it. The size of the pool is not the cause",
                Action::new("Give the user or group of QEMU the mount (gid= and mode=1770); look for DENIED in the journal").by("journalctl -k -g 'denied|DENIED'"),
            ));
        } else if why.starts_with("Invalid argument") {
            causes.push(Candidate::new(
                "the memory of the guest (or of one of its NUMA nodes) is not a multiple of the page size of that mount. The size of the pool is not \
                 the cause",
                Action::new("Make -m and the size= of each memory backend a multiple of the page size"),
            ));
        } else if self.has_enough() != Some(true) && !self.is_in_sandbox() {
            causes.push(
                Candidate::new(
                    "a limit of its control group on huge pages (in Kubernetes: hugepages-SIZE of the pod) is smaller than the guest",
                    Action::new("Raise the request of hugepages-SIZE to the memory of the guest")
                        .by("cat /sys/fs/cgroup/hugetlb.*.max"),
                )
                .unless(self.known.hugetlb_limit == Some(None), "the control group has no limit on hugetlb pages")
                .unless(self.known.total.is_some_and(|total| total.0 == 0), "the pool has no pages")
                .unless(self.known.free.is_some_and(|free| free.0 == 0), "no page of the pool is free"),
            );
        }
        let question = Action::new(
            "How many pages of the page size of -mem-path are free on the host, on the node of the guest, and which limits has its control \
             group? The guest needs -m divided by the page size",
        )
        .by("grep -H . /sys/devices/system/node/node*/hugepages/*/free_hugepages; cat /sys/fs/cgroup/hugetlb.*.max");
        (causes, question)
    }

    fn dpdk_causes(&self) -> (Vec<Candidate>, Action) {
        let facts = &self.known;
        let mounted = facts.mounted.is_some();
        let empty = facts.total.is_some_and(|total| total.0 == 0);
        let full = facts.free.is_some_and(|free| free.0 == 0);
        let mount = Candidate::new(
            "no hugetlbfs of the page size is mounted where DPDK runs, or it has no right to the folder",
            Action::new("Mount hugetlbfs with pagesize= and the user of DPDK, or start it with --in-memory, which needs no mount"),
        )
        .unless(mounted, "a hugetlbfs is mounted")
        .unless(empty, "the pool has no pages");
        let left = Candidate::new(
            "files that a killed program left in hugetlbfs hold the pages",
            Action::new("Remove the rtemap_ files in hugetlbfs of programs that do not run, or start DPDK with --huge-unlink")
                .by("ls -l /dev/hugepages"),
        )
        .unless(facts.free.is_some() && !full, "pages of the pool are free")
        .unless(empty, "the pool has no pages");
        let cap = Candidate::new(
            "--socket-mem, --socket-limit or -m of DPDK permit less than it needs, or the pages are on another node than its ports",
            Action::new("Raise --socket-mem (or remove it), and reserve pages on the node of each port: hugewise apply --pool SIZE@NODE=N"),
        )
        .unless(empty, "the pool has no pages")
        .unless(full, "no page of the pool is free");
        let question = Action::new("Which pages are free on each node, is hugetlbfs mounted, and which files are in it?")
            .by("grep -H . /sys/devices/system/node/node*/hugepages/*/*_hugepages; grep hugetlbfs /proc/mounts; ls -l /dev/hugepages");
        (vec![mount, left, cap], question)
    }

    fn dotnet_causes(&self) -> (Vec<Candidate>, Action) {
        let facts = &self.known;
        let large = facts.requested_pool();
        let memory = Candidate::new(
            "memory, or the limit of the container, is too small for the heap. Huge pages are not the cause",
            Action::new("Reduce GCHeapHardLimit, or raise the limit of memory"),
        )
        .unless(large == Some(true), "GCLargePages is on: the heap is committed from the pool");
        let space = Candidate::new(
            "the address space is limited: .NET reserves twice the memory of the machine, or 256 GiB (ulimit -v, a sandbox, a phone). Huge \
             pages are not the cause",
            Action::new("Remove the limit (LimitAS=, ulimit -v), or set DOTNET_GCRegionRange or DOTNET_GCHeapHardLimit"),
        )
        .unless(large == Some(true), "GCLargePages is on: the heap is committed from the pool");
        let question = Action::new(
            "Is GCLargePages on (DOTNET_GCLargePages in the environment, System.GC.LargePages in runtimeconfig.json)? Then the pool is \
             smaller than GCHeapHardLimit; if not, compare memory and ulimit -v",
        )
        .by("env | grep -i GCLargePages; grep Huge /proc/meminfo; ulimit -v");
        (vec![memory, space], question)
    }
}
