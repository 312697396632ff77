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
    row(ProgramSetting, Harm::Stopped, "CRIU",
        r"(?i)criu/.*(?:hugetlb|anon_hugepage)|(?:hugetlb|anon_hugepage).*(?:criu|dump)",
        "Error (criu/proc_parse.c:611): Can't handle non-regular mapping on 4711's map 40000000 (/anon_hugepage)",
        "CRIU before 3.17 cannot dump memory on hugetlb pages; a restored process loses its transparent huge pages.",
        "Use CRIU 3.17 or later with a pool of the same size where it restores, or checkpoint without -XX:+UseLargePages"),
    row(ContainerLimit, Harm::Stopped, "Kubernetes",
        r"hugepages-\d+[KMG]i.{0,80}(?:Invalid value|Required value|must be equal|must specify|overcommit|Unsupported value)|(?:Invalid value|Required value|must be equal).{0,120}hugepages-",
        "spec.containers[0].resources.requests: Invalid value: \"1Gi\": must be equal to hugepages-2Mi limit of 2Gi",
        "Kubernetes does not overcommit huge pages: request and limit must be equal, and a multiple of the page size.",
        "Set requests and limits of hugepages-SIZE to the same value"),
    row(ContainerLimit, Harm::Stopped, "a container runtime",
        r"(?i)(?:oci runtime|runc|crun|containerd|dockerd|podman|kubelet).{0,300}(?:hugetlb|hugepage)",
        "OCI runtime create failed: runc create failed: the hugetlb controller is not available",
        "The runtime could not apply the limit on huge pages: the hugetlb controller is not available in this control group, or \
         has no such page size.",
        "On the node, enable the hugetlb controller (cgroup.controllers must list it); restart the kubelet after a pool changed"),
    row(BusError, Harm::Stopped, "a container runtime",
        r#"(?i)\bexit(?:ed)?(?: with)?(?:[ _]?(?:code|status))?"?[:=]?\s*135\b"#,
        "child process exited with exit code 135", "", ""),
];
