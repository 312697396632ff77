//! The control group of a program, and the processes in it.

use std::{
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    cgroup::{self, MOUNTINFO},
    reading::Reason,
    root::Root,
    sys::process,
    systemd,
};

/// Endings of the systemd units that have a control group.
const UNIT_ENDINGS: [&str; 3] = [".service", ".scope", ".slice"];

/// Fewest digits of a container's id; docker prints so many.
const MIN_ID_DIGITS: usize = 12;

/// The group of the sessions and services of users.
const USERS: &str = "user.slice";
/// Write permission for group and others.
const WRITABLE: u32 = 0o022;

/// Processes that run beside a container, in a group with its id.
const MONITOR: &str = "-conmon-";

/// What names a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupName {
    /// A folder of the file system, or a group as in /proc/PID/cgroup, in any mounted hierarchy.
    Path(PathBuf),
    /// A unit of systemd.
    Unit(String),
    /// The id of a container, or its beginning.
    Container(String),
}

impl GroupName {
    /// The group that `text` names: a path has a slash, a unit its ending, and an id only hexadecimal digits.
    pub fn parse(text: &str) -> Option<GroupName> {
        let is_id_digit = |digit: char| matches!(digit, '0'..='9' | 'a'..='f');
        if text.contains('/') {
            Some(GroupName::Path(PathBuf::from(text)))
        } else if UNIT_ENDINGS.iter().any(|ending| text.ends_with(ending)) {
            Some(GroupName::Unit(text.to_owned()))
        } else if text.len() >= MIN_ID_DIGITS && text.chars().all(is_id_digit) {
            Some(GroupName::Container(text.to_owned()))
        } else {
            None
        }
    }

    /// Its folder, relative to the root.
    fn folder(&self, root: &Root) -> Result<PathBuf, Reason> {
        let mounts = cgroup::mount_points(&root.read(MOUNTINFO).unwrap_or_default());
        match self {
            GroupName::Path(path) => return folder_at(root, path, &mounts),
            GroupName::Unit(unit) if root.is_live() => {
                if let Some(group) =
                    systemd::control_group(unit).map_err(|error| Reason::new(error.to_string()))?
                {
                    let group = group.trim_start_matches('/');
                    let mut places = mounts.iter().map(|mount| mount.join(group));
                    let found = places.find(|dir| root.has_file(dir.join("cgroup.procs")));
                    return found.ok_or_else(|| {
                        Reason::new(format!("{self} has no control group that is mounted here"))
                    });
                }
            }
            _ => {}
        }
        let mut in_each = mounts.into_iter().map(|mount| self.folders_below(root, mount));
        let found = in_each.find(|found| !found.is_empty()).unwrap_or_default();
        match &found[..] {
            [folder] => Ok(folder.clone()),
            [] => Reason::err(format!(
                "{self} has no control group: it does not run, or is hidden from here; groups that users make are \
                 found by their paths only"
            )),
            several => {
                // The names may contain control characters.
                let paths: Vec<String> =
                    several.iter().map(|dir| format!("{:?}", root.path(dir).display().to_string())).collect();
                Reason::err(format!(
                    "{self} has several control groups; name one of them: {}",
                    paths.join(", ")
                ))
            }
        }
    }

    /// The groups of this name in one hierarchy, but for those that another user may have made. A group inside another
    /// one of the name belongs to that one.
    fn folders_below(&self, root: &Root, mount: PathBuf) -> Vec<PathBuf> {
        let may_look_into = |folder: &Path| is_of_root_or_ours(root, folder);
        let named: Vec<PathBuf> = folders_into(root, mount, &may_look_into)
            .into_iter()
            .filter(|folder| self.is_of(folder))
            .collect();
        let is_inner =
            |folder: &PathBuf| named.iter().any(|other| other != folder && folder.starts_with(other));
        named.iter().filter(|folder| !is_inner(folder)).cloned().collect()
    }

    /// Whether the last part of `folder` is this name.
    fn is_of(&self, folder: &Path) -> bool {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        match self {
            GroupName::Path(_) => false,
            GroupName::Unit(unit) => *name == **unit,
            // `ID` of docker without systemd, or `KIND-ID.scope`.
            GroupName::Container(id) => {
                let last = name.strip_suffix(".scope").unwrap_or(&name).rsplit('-').next();
                last.is_some_and(|last| last.starts_with(id)) && !name.contains(MONITOR)
            }
        }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupName::Path(path) => write!(f, "control group {}", path.display()),
            GroupName::Unit(unit) => write!(f, "unit {unit}"),
            GroupName::Container(id) => write!(f, "container {id}"),
        }
    }
}

/// Process ids in the group and its descendants, sorted.
pub fn read(root: &Root, group: &GroupName) -> Result<Vec<u32>, Reason> {
    let group = group.folder(root)?;
    let mut pids = Vec::new();
    for folder in folders(root, group.clone()) {
        let procs = match root.read(folder.join("cgroup.procs")) {
            // The processes of a threaded group are listed in its parent.
            Err(error) if folder == group => return Err(error.into()),
            // Descendants may disappear during the walk.
            procs => procs.unwrap_or_default(),
        };
        // 0 stands for a process outside of our PID namespace.
        pids.extend(
            procs.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid: &u32| *pid != 0),
        );
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// The folder of the group `path`.
fn folder_at(root: &Root, path: &Path, mounts: &[PathBuf]) -> Result<PathBuf, Reason> {
    let below = path.strip_prefix("/").unwrap_or(path);
    let mut places = vec![below.to_owned()];
    if root.is_live() && path.is_relative() {
        // Also relative to the current folder.
        places.extend(
            std::env::current_dir().ok().and_then(|dir| Some(dir.strip_prefix("/").ok()?.join(path))),
        );
    }
    places.extend(mounts.iter().map(|mount| mount.join(below)));
    places.iter().find(|dir| root.has_file(dir.join("cgroup.procs"))).cloned().ok_or_else(|| {
        let tried: Vec<String> = places.iter().map(|dir| root.path(dir).display().to_string()).collect();
        Reason::new(format!("control group {} does not exist; tried {}", path.display(), tried.join(", ")))
    })
}

/// Whether no other user can make groups in this folder.
///
/// Those below `user.slice` are made for users, who choose the names of some.
fn is_of_root_or_ours(root: &Root, folder: &Path) -> bool {
    let ours = process::effective_uid();
    if ours == 0 && folder.file_name().is_some_and(|name| name == USERS) {
        return false;
    }
    fs::metadata(root.path(folder))
        .is_ok_and(|found| (found.uid() == 0 || found.uid() == ours) && found.mode() & WRITABLE == 0)
}

/// The group's folder and those of its descendants.
fn folders(root: &Root, group: PathBuf) -> Vec<PathBuf> {
    folders_into(root, group, &|_| true)
}

/// The group's folder and those of its descendants, whose parents fulfil a condition.
fn folders_into(root: &Root, group: PathBuf, may_look_into: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut folders = vec![group];
    let mut at = 0;
    while let Some(folder) = folders.get(at).cloned() {
        at += 1;
        if !may_look_into(&folder) {
            continue;
        }
        let names = root.list(&folder).unwrap_or_default();
        let inner = names.iter().map(|name| folder.join(name));
        folders.extend(inner.filter(|dir: &PathBuf| root.has_file(dir.join("cgroup.procs"))));
    }
    folders
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        os::unix::fs::{PermissionsExt, chown},
    };

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
        let of = |name: &str| read(&root, &GroupName::Path(PathBuf::from(name)));
        for name in ["/app", "app", "/sys/fs/cgroup/app"] {
            assert_eq!(of(name), Ok(vec![5, 12]), "{name}");
        }
        assert_eq!(of("/"), Ok(vec![1, 5, 12]));
        assert!(of("nowhere").is_err_and(|error| error.to_string().contains("sys/fs/cgroup/nowhere")));
    }

    #[test]
    fn units_and_containers_are_found_by_name() {
        let groups = "sys/fs/cgroup/systemd";
        let file = |folder: &str| format!("{groups}/{folder}/cgroup.procs");
        let id = "0123456789abcdef";
        let files = [
            (MOUNTINFO.to_owned(), format!("30 1 0:1 / /{groups} rw - cgroup cgroup rw,name=systemd\n")),
            (file("."), String::new()),
            (file("system.slice"), String::new()),
            (file("system.slice/db.service"), "7\n".to_owned()),
            (file("system.slice/db.service/db.service"), "9\n".to_owned()),
            (file("user.slice/own.slice/twin.service"), "1\n".to_owned()),
            (file("user.slice/own.slice"), String::new()),
            (file("user.slice"), String::new()),
            (file("system.slice/twin.service"), "2\n".to_owned()),
            (file("system.slice/other.service"), "3\n".to_owned()),
            (file("\u{1b}[2J/other.service"), "4\n".to_owned()),
            (file("\u{1b}[2J"), String::new()),
            (file(&format!("system.slice/docker-{id}.scope")), "20\n".to_owned()),
            (file("machine.slice/libpod-fedcba987654.scope/container"), "30\n".to_owned()),
            (file("machine.slice/libpod-fedcba987654.scope"), String::new()),
            (file("machine.slice/libpod-conmon-fedcba987654.scope"), "31\n".to_owned()),
            (file("machine.slice"), String::new()),
            (file("docker"), String::new()),
            (file("docker/aaaaaaaaaaaabbbb"), "40\n".to_owned()),
        ];
        let files: Vec<(&str, &str)> =
            files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let (_dir, root) = tree(&files);
        let of = |text: &str| read(&root, &GroupName::parse(text).expect(text));
        assert_eq!(of("db.service"), Ok(vec![7, 9]));
        assert_eq!(of(&id[..12]), Ok(vec![20]));
        assert_eq!(of(id), Ok(vec![20]));
        assert_eq!(of("fedcba987654"), Ok(vec![30]));
        assert_eq!(of("aaaaaaaaaaaa"), Ok(vec![40]));
        let several = of("other.service").expect_err("two").to_string();
        for path in ["system.slice/other.service\"", "\\u{1b}[2J/other.service\""] {
            assert!(several.contains(path), "{several}");
        }
        // Of two, one is a user's; as another user than root it may be one's own.
        let twin = of("twin.service");
        assert!(if process::is_root() { twin == Ok(vec![2]) } else { twin.is_err() });
        let none = of("gone.service").expect_err("none").to_string();
        assert!(none.starts_with("unit gone.service has no control group"), "{none}");
        assert!(of("000000000000").is_err());
    }

    #[test]
    fn groups_that_other_users_made_have_no_name() -> io::Result<()> {
        let (dir, root) = tree(&[
            (MOUNTINFO, "30 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"),
            ("sys/fs/cgroup/cgroup.procs", ""),
            ("sys/fs/cgroup/made/cgroup.procs", ""),
            ("sys/fs/cgroup/made/db.service/cgroup.procs", "6\n"),
            ("sys/fs/cgroup/made/0123456789abcdef/cgroup.procs", "6\n"),
            ("sys/fs/cgroup/own.service/cgroup.procs", "7\n"),
            ("sys/fs/cgroup/own.service/inner/cgroup.procs", "8\n"),
        ]);
        let of = |text: &str| read(&root, &GroupName::parse(text).expect(text));
        assert_eq!((of("db.service"), of("0123456789abcdef")), (Ok(vec![6]), Ok(vec![6])));
        let groups = dir.path().join("sys/fs/cgroup");
        fs::set_permissions(groups.join("made"), fs::Permissions::from_mode(0o777))?;
        assert!(of("db.service").is_err() && of("0123456789abcdef").is_err());
        fs::set_permissions(groups.join("made"), fs::Permissions::from_mode(0o755))?;
        if process::is_root() {
            // systemd gives a group with `Delegate=` to the user of the unit; its name is still of root.
            for delegated in ["made", "own.service"] {
                chown(groups.join(delegated), Some(65534), None)?;
            }
            assert!(of("db.service").is_err() && of("0123456789abcdef").is_err());
            assert_eq!(of("own.service"), Ok(vec![7, 8]));
            assert_eq!(of("/sys/fs/cgroup/made/db.service"), Ok(vec![6]));
        }
        Ok(())
    }

    #[test]
    fn other_words_name_no_group() {
        for word in ["", "tomcat10", "4711", "0123456789a", "0123456789ABCDEF", "service"] {
            assert_eq!(GroupName::parse(word), None, "{word}");
        }
    }
}
