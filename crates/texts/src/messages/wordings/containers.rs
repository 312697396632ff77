//! Container runtimes, tools that set pools, and checkpoints.

use super::{Wording, row};
use crate::messages::{Family::*, Harm};

#[rustfmt::skip]
pub(super) const WORDINGS: &[Wording] = &[
    row(ProgramSetting, Harm::Stopped, "a shell, sysctl",
        r"(?:nr_hugepages|nr_overcommit_hugepages|transparent_hugepage|hugepages-\d+kB)\S*.{0,40}(?:Read-only file system|Permission denied|Operation not permitted)|permission denied on key .vm\.nr_(?:overcommit_)?hugepages",
        "sysctl: cannot open /proc/sys/vm/nr_hugepages: Read-only file system",
        "A container does not change the settings of its host, and its root may not.",
        "Change it on the host. For WSL, where memory is fragmented soon: kernelCommandLine=hugepages=N in .wslconfig"),
    row(ProgramSetting, Harm::NotHuge, "systemd",
        r"(?i)(?:failed|unknown|invalid|cannot|not supported).{0,120}\bMemoryTHP\b|\bMemoryTHP\b.{0,120}(?i:failed|unknown|invalid|not supported)",
        "systemd[1]: web.service: Failed to apply MemoryTHP=madvise: Operation not supported",
        "MemoryTHP= needs systemd 260, and PR_THP_DISABLE of the kernel; exempting programs that advise needs Linux 6.18. The unit \
         has the THP mode of the machine.",
        "Remove MemoryTHP= or update systemd and the kernel; check the process: hugewise inspect PID"),
    row(ProgramSetting, Harm::Warned, "TuneD",
        r"(?i)transparent_?hugepages?\S* (?:option )?is not supported on (?:current|this) hardware",
        "WARNING  tuned.plugins.base: Option 'transparent_hugepages' is not supported on current hardware.",
        "TuneD found no file of the THP setting: the kernel has no THP, or /sys of the host is not visible in this container.",
        "Remove transparent_hugepages from the profile, or run TuneD on the host"),
    row(ProgramSetting, Harm::NotHuge, "systemd",
        r"(?i)(?:failed to mount|dependency failed for|timed out mounting) .*(?:dev-hugepages|huge ?pages file system)|dev-hugepages\w*\.(?:mount|automount): .*(?:failed|status=[1-9])",
        "systemd[1]: dev-hugepages1G.mount: Mount process exited, code=exited, status=32/n/a",
        "hugetlbfs could not be mounted: this kernel or container has none, or no pages of that size. JVMs and databases need no \
         mount; DPDK, QEMU and libvirt do.",
        "Read the error of mount (journalctl -u dev-hugepages.mount), and compare pagesize= with the sizes that hugewise check lists"),
    row(ProgramSetting, Harm::Warned, "systemd",
        r"(?i)(?:fail|invalid|cannot|unable|not permitted).*\b(?:RLIMIT_|Limit)MEMLOCK\b|\b(?:RLIMIT_|Limit)MEMLOCK\b.*(?:fail|invalid|cannot|unable|not permitted|ignoring)",
        "mysqld.service: Failed to adjust resource limit RLIMIT_MEMLOCK: Operation not permitted",
        "The limit of locked memory could not be raised. SysV shared memory on huge pages (MySQL, Oracle, -XX:+UseSHM) needs it, \
         or the group vm.hugetlb_shm_group; other huge pages do not.",
        "Raise the limit where systemd itself runs (a container or user manager cannot exceed its own), or set vm.hugetlb_shm_group"),
    row(ProgramSetting, Harm::Stopped, "AppArmor",
        r#"apparmor="DENIED".* profile="(?<name>[^"]+)".* name="[^"]*(?:hugepages|hugetlb|huge)[^"]*""#,
        "audit: type=1400 audit(1636697125.209:59): apparmor=\"DENIED\" operation=\"open\" profile=\"libvirt-15de3735\" \
         name=\"/dev/hugepages/libvirt/qemu/1-vm/\" pid=14630 comm=\"qemu-system-x86\" requested_mask=\"rw\" denied_mask=\"rw\"",
        "AppArmor's profile {name} forbids the program files of hugetlbfs: it gets no huge pages from there, whatever the pool has.",
        "Permit the folder in a local addition of the profile (owner /dev/hugepages/** rwk,), then: sudo apparmor_parser -r FILE"),
    row(ProgramSetting, Harm::Stopped, "SELinux",
        r"(?i)avc: +denied .*hugetlbfs|SELinux is preventing (?<name>\S+) from .*(?:hugetlbfs|hugepages)",
        "type=AVC msg=audit(1547117832.842:491): avc:  denied  { read write } for  pid=21062 comm=\"qemu-kvm\" \
         path=\"/dev/hugepages/libvirt/qemu\" dev=\"hugetlbfs\" tcontext=system_u:object_r:hugetlbfs_t:s0 tclass=file permissive=0",
        "SELinux forbids the program files of hugetlbfs: it gets no huge pages from there, whatever the pool has (permissive=1: it \
         would be forbidden).",
        "Build a local module: ausearch -m avc -ts recent | audit2allow -M hugepages; semodule -i hugepages.pp"),
    row(BusError, Harm::Stopped, "systemd",
        r"code=(?:dumped|killed), status=7/BUS",
        "systemd[1]: db.service: Main process exited, code=dumped, status=7/BUS", "", ""),
    row(ProgramSetting, Harm::Stopped, "CRIU",
        r"(?i)\bcriu\b.*(?:hugetlb|anon_hugepage)|non-regular mapping.*(?:hugetlb|anon_hugepage)",
        "Error (criu/proc_parse.c:611): Can't handle non-regular mapping on 4711's map 40000000 (/anon_hugepage)",
        "CRIU before 3.17 cannot dump memory on hugetlb pages; a restored process loses its transparent huge pages.",
        "Use CRIU 3.17 or later with a pool of the same size where it restores, or checkpoint without -XX:+UseLargePages"),
    row(ContainerLimit, Harm::Stopped, "Kubernetes",
        r"hugepages-\d+[KMG]i.{0,80}(?:Invalid value|Required value|must be equal|must specify|overcommit|Unsupported value)|(?:Invalid value|Required value|must be equal).{0,120}hugepages-",
        "spec.containers[0].resources.requests: Invalid value: \"1Gi\": must be equal to hugepages-2Mi limit of 2Gi",
        "Kubernetes does not overcommit huge pages: request and limit must be equal, and a multiple of the page size.",
        "Set requests and limits of hugepages-SIZE to the same value"),
    row(ContainerLimit, Harm::Stopped, "the kubelet",
        r"(?:OutOf|have enough resource: )(?<name>hugepages-(?<page>\d+[KMG]i))",
        "Warning  OutOfhugepages-2Mi  kubelet  Node didn't have enough resource: hugepages-2Mi, requested: 6291456, used: 6291456, \
         capacity: 10485760",
        "The kubelet refused the pod, which was bound to this node without regard to its {name}: other pods have requested them \
         (used) from those that the kubelet counted at its start (capacity).",
        "Let the scheduler place the pod (no nodeName), free the pages of another pod, or grow the pool and restart the kubelet"),
    row(ContainerLimit, Harm::Stopped, "the kubelet",
        r"total amount .{0,40} of type .{0,4}hugepages-\S+ is not equal to the value",
        "err=\"the total amount \\\"10Mi\\\" of type \\\"hugepages-2Mi\\\" is not equal to the value \\\"0\\\" determined by Node \
         Allocatable feature\"",
        "The kubelet did not start: reservedMemory of the static memory manager names huge pages, which kube-reserved and \
         system-reserved cannot contain.",
        "Remove hugepages-SIZE from --reserved-memory (reservedMemory of its configuration)"),
    row(ContainerLimit, Harm::Stopped, "the kubelet",
        r"pre-allocated hugepages for multiple page sizes",
        "Node \"worker-01\" is invalid: may not have pre-allocated hugepages for multiple page sizes",
        "Kubernetes before 1.18 permits pools of one page size on a node only: its state is not updated.",
        "Reduce the pools of the other sizes to 0 and restart the kubelet, or update Kubernetes"),
    row(ContainerLimit, Harm::Warned, "a container runtime",
        r"(?i)failed to fetch hugetlb info|unable to parse .{0,60} cgroup file .{0,200}hugetlb",
        "failed to fetch hugetlb info: unable to get hugepage size, continuing to push stats",
        "The runtime could not read its counters of huge pages, for its metrics: no effect on the containers or their limits.",
        "Update the runtime; or switch the metrics of hugetlb off"),
    row(ContainerLimit, Harm::Stopped, "a container runtime",
        r"(?i)\b(?:oci runtime|runc|crun|containerd|dockerd|podman|kubelet)\b.{0,300}(?:fail|error|unable|cannot).{0,300}(?:hugetlb|hugepage)|/sys/fs/cgroup/hugetlb\S*: no such file",
        "OCI runtime create failed: runc create failed: the hugetlb controller is not available",
        "The runtime could not apply the limit on huge pages: the hugetlb controller is not available in this control group, or \
         has no such page size.",
        "On the node, enable the hugetlb controller (cgroup.controllers must list it); restart the kubelet after a pool changed"),
    row(BusError, Harm::Stopped, "a container runtime",
        r#"(?i)\bexit(?:ed)?(?: with)?(?:[ _]?(?:code|status))?"?[:=]?\s*135\b"#,
        "child process exited with exit code 135", "", ""),
];
