//! Whether the threads of a process are held by a freezer of control groups.

use super::{Group, MOUNTINFO, Version, group};
use crate::root::Root;

/// Whether process `pid` is in a frozen group; `false` if its groups are not visible.
pub fn is_frozen(root: &Root, pid: u32) -> bool {
    let (Ok(cgroup), Ok(mounts)) = (root.read(format!("proc/{pid}/cgroup")), root.read(MOUNTINFO)) else {
        return false;
    };
    // Both may hold it on a machine with both versions. The line of version 2 names no controller.
    ["freezer", ""]
        .into_iter()
        .filter_map(|controller| group(root, &cgroup, &mounts, controller).ok())
        .any(|group| holds(root, &group))
}

/// The files count a frozen group above as well.
fn holds(root: &Root, group: &Group) -> bool {
    match group.version {
        Version::V1 => root
            .read(group.dir.join("freezer.state"))
            .is_ok_and(|state| matches!(state.trim(), "FROZEN" | "FREEZING")),
        Version::V2 => root
            .read(group.dir.join("cgroup.events"))
            .is_ok_and(|events| events.lines().any(|line| line == "frozen 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    const MOUNTS: &str = "\
30 1 0:26 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
31 1 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn either_version_holds_a_process() {
        let of = |v1: &str, v2: &str| {
            let (_dir, root) = tree(&[
                ("proc/7/cgroup", "4:freezer:/a\n0::/b\n"),
                ("proc/self/mountinfo", MOUNTS),
                ("sys/fs/cgroup/freezer/a/cgroup.procs", ""),
                ("sys/fs/cgroup/freezer/a/freezer.state", v1),
                ("sys/fs/cgroup/unified/b/cgroup.procs", ""),
                ("sys/fs/cgroup/unified/b/cgroup.events", v2),
            ]);
            is_frozen(&root, 7)
        };
        assert!(!of("THAWED\n", "populated 1\nfrozen 0\n"));
        assert!(of("FROZEN\n", "populated 1\nfrozen 0\n"));
        assert!(of("THAWED\n", "populated 1\nfrozen 1\n"));
        let (_dir, without) = tree(&[]);
        assert!(!is_frozen(&without, 7));
    }
}
