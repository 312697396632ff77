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
    row(ContainerLimit, Harm::Stopped, "a container runtime",
        r"(?i)\b(?:oci runtime|runc|crun|containerd|dockerd|podman|kubelet)\b.{0,300}(?:fail|error|unable|cannot).{0,300}(?:hugetlb|hugepage)",
        "OCI runtime create failed: runc create failed: the hugetlb controller is not available",
        "The runtime could not apply the limit on huge pages: the hugetlb controller is not available in this control group, or \
         has no such page size.",
        "On the node, enable the hugetlb controller (cgroup.controllers must list it); restart the kubelet after a pool changed"),
    row(BusError, Harm::Stopped, "a container runtime",
        r#"(?i)\bexit(?:ed)?(?: with)?(?:[ _]?(?:code|status))?"?[:=]?\s*135\b"#,
        "child process exited with exit code 135", "", ""),
];
