//! The processes of a control group and its descendants.

use std::path::{Path, PathBuf};

use crate::{
    cgroup::{self, MOUNTINFO},
    reading::Reason,
    root::Root,
};

/// Process ids in the group `path` and its descendants, sorted.
///
/// `path` is a folder of the file system, or a group as in /proc/PID/cgroup, in any mounted hierarchy.
pub fn read(root: &Root, path: &Path) -> Result<Vec<u32>, Reason> {
    let mounts = root.read(MOUNTINFO).unwrap_or_default();
    let below = path.strip_prefix("/").unwrap_or(path);
    let mut places = vec![below.to_owned()];
    if root.is_live() && path.is_relative() {
        // Also relative to the current folder.
        places.extend(
            std::env::current_dir().ok().and_then(|dir| Some(dir.strip_prefix("/").ok()?.join(path))),
        );
    }
    places.extend(cgroup::mount_points(&mounts).into_iter().map(|mount| mount.join(below)));
    let group = places.iter().find(|dir| root.has_file(dir.join("cgroup.procs"))).ok_or_else(|| {
        let tried: Vec<String> = places.iter().map(|dir| root.path(dir).display().to_string()).collect();
        Reason::new(format!("control group {} does not exist; tried {}", path.display(), tried.join(", ")))
    })?;
    let mut pids = Vec::new();
    let mut folders = vec![group.clone()];
    while let Some(folder) = folders.pop() {
        let procs = match root.read(folder.join("cgroup.procs")) {
            // The processes of a threaded group are listed in its parent.
            Err(error) if folder == *group => return Err(error.into()),
            // Descendants may disappear during the walk.
            procs => procs.unwrap_or_default(),
        };
        // 0 stands for a process outside of our PID namespace.
        pids.extend(
            procs.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid: &u32| *pid != 0),
        );
        let names = root.list(&folder).unwrap_or_default();
        let inner = names.iter().map(|name| folder.join(name));
        folders.extend(inner.filter(|dir: &PathBuf| root.has_file(dir.join("cgroup.procs"))));
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    #[test]
    fn a_group_is_found_by_either_name_and_read_to_its_leaves() {
        let (_dir, root) = tree(&[
            (MOUNTINFO, "30 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"),
            ("sys/fs/cgroup/cgroup.procs", "1\n"),
            ("sys/fs/cgroup/app/cgroup.procs", "12\n0\n"),
            ("sys/fs/cgroup/app/inner/cgroup.procs", "5\n12\n"),
        ]);
        for name in ["/app", "app", "/sys/fs/cgroup/app"] {
            assert_eq!(read(&root, Path::new(name)), Ok(vec![5, 12]), "{name}");
        }
        assert_eq!(read(&root, Path::new("/")), Ok(vec![1, 5, 12]));
        assert!(
            read(&root, Path::new("nowhere"))
                .is_err_and(|error| error.to_string().contains("sys/fs/cgroup/nowhere"))
        );
    }
}
