//! The control group limits of this process, in cgroup v1, v2, or both.

pub mod frozen;
pub mod processes;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    proc::mounts::{self, Mount},
    reading::{Reading, Reason},
    root::{ReadError, Root},
    units::{Bytes, PageSize},
};

/// Path of the process's groups.
pub const CGROUP: &str = "proc/self/cgroup";
/// Path of the mounts.
pub const MOUNTINFO: &str = "proc/self/mountinfo";

/// Prefix of the files of the memory controller.
const MEMORY: &str = "memory.";

/// Lower bound of "no limit" as a number: the kernel writes 2⁶³ rounded down to a page in v1, and for hugetlb in v2 of
/// Linux 6.16 to 7.1.
const UNLIMITED: u64 = 1 << 62;
/// In place of the file of a limit above the visible control groups.
pub(crate) const ABOVE: &str = ".. (a control group above this container)";
/// The link of a process to its control group namespace.
const NAMESPACE: &str = "proc/self/ns/cgroup";
/// The namespace of the machine itself (`PROC_CGROUP_INIT_INO` of the kernel).
const NAMESPACE_OF_MACHINE: &str = "cgroup:[4026531835]";

/// The cgroup limits on memory and on hugetlb pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupLimits {
    /// The process's group of the memory controller.
    pub memory_group: Reading<Group>,
    /// The memory limit with the fewest bytes left, of that group and its ancestors; `null` if there is none. Does
    /// not include hugetlb pages, except on v2 with the mount option `memory_hugetlb_accounting`.
    pub memory: Reading<Option<Limit>>,
    /// The process's group of the hugetlb controller.
    pub hugetlb_group: Reading<Group>,
    /// The limits on hugetlb pages, by page size.
    pub hugetlb: Vec<HugetlbLimits>,
    /// True if hugetlb pages are charged to the memory limit.
    pub memory_counts_hugetlb: Reading<bool>,
}

/// The version of a control group hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

/// The process's group of one controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// The version of the hierarchy with this controller.
    pub version: Version,
    /// The path of the group in /proc/self/cgroup.
    pub path: String,
    /// The folder of the group, relative to the root.
    pub dir: PathBuf,
    /// The mount point of the hierarchy, relative to the root.
    pub mount: PathBuf,
    /// True if there are groups above the mount point, whose limits are not visible (as in a container).
    pub hidden_above: bool,
}

/// The limit with the fewest bytes left, of a group and its ancestors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// The limit, in bytes.
    pub bytes: Bytes,
    /// Bytes charged to it.
    #[serde(rename = "used_bytes")]
    pub used: Reading<Bytes>,
    /// Bytes that may still be charged. The page cache counts as available: the kernel reclaims it before it
    /// kills a process.
    #[serde(rename = "left_bytes", default = "not_recorded")]
    pub left: Reading<Bytes>,
    /// The file of the limit, relative to the root.
    pub file: PathBuf,
}

impl Limit {
    /// Whether this process sees its file; otherwise only a trial has shown the limit.
    pub fn is_visible(&self) -> bool {
        !self.file.ends_with(ABOVE)
    }
}

/// The value of a field that older recordings lack.
fn not_recorded() -> Reading<Bytes> {
    Reading::unknown("not recorded by this version of hugewise")
}

/// The limits on hugetlb pages of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HugetlbLimits {
    /// The page size.
    #[serde(rename = "page_size_bytes")]
    pub page_size: PageSize,
    /// The limit on used pages: a page fault beyond it ends in SIGBUS. `null` if there is no limit.
    pub touch: Reading<Option<Limit>>,
    /// The limit on reserved pages: mmap beyond it fails with ENOMEM. `null` if there is no limit.
    pub reserve: Reading<Option<Limit>>,
}

impl CgroupLimits {
    /// The part of `available`, the memory available on the machine, that this process's groups allow.
    pub fn available_memory(&self, available: &Reading<Bytes>) -> Reading<Bytes> {
        let left = self.memory.clone().and_then(|limit| match limit {
            Some(limit) => limit.left.into_result().map(Some),
            None => Ok(None),
        });
        left.and_then(|left| {
            let available = available.clone().into_result()?;
            Ok::<_, Reason>(left.map_or(available, |left| left.min(available)))
        })
    }
}

/// Reads the limits that apply to this process, for pools of `sizes`.
pub fn read(root: &Root, sizes: &[PageSize]) -> CgroupLimits {
    let files = root.read(CGROUP).and_then(|cgroup| Ok((cgroup, root.read(MOUNTINFO)?)));
    let group = |controller: &str| match &files {
        Ok((cgroup, mounts)) => group(root, cgroup, mounts, controller).into(),
        Err(error) => Reading::unknown(error),
    };
    let tightest =
        |group: &Reading<Group>, prefix: &str| group.clone().and_then(|group| tightest(root, &group, prefix));
    let memory_group = group("memory");
    let hugetlb_group = group("hugetlb");
    let hugetlb = sizes.iter().map(|&page_size| {
        let name = controller_name(page_size);
        HugetlbLimits {
            page_size,
            touch: tightest(&hugetlb_group, &format!("hugetlb.{name}.")),
            reserve: tightest(&hugetlb_group, &format!("hugetlb.{name}.rsvd.")),
        }
    });
    CgroupLimits {
        memory: tightest(&memory_group, MEMORY),
        hugetlb: hugetlb.collect(),
        memory_counts_hugetlb: match (&memory_group, &files) {
            (Reading::Known(group), Ok((_, mounts))) => {
                let counts = |mount: Mount| mount.kind == "cgroup2" && mount.has("memory_hugetlb_accounting");
                Reading::Known(group.version == Version::V2 && mounts::parse(mounts).any(counts))
            }
            (group, _) => group.clone().map(|_| false),
        },
        memory_group,
        hugetlb_group,
    }
}

/// The page size as the kernel names it in this controller: `2MB`, `1GB`, `64KB`.
fn controller_name(size: PageSize) -> String {
    match size.log2() {
        30.. => format!("{}GB", size.bytes().0 >> 30),
        20..30 => format!("{}MB", size.bytes().0 >> 20),
        _ => format!("{}KB", size.bytes().0 >> 10),
    }
}

/// The mount points of hierarchies, relative to the root: v2 first, then v1 with memory first.
pub fn mount_points(mounts: &str) -> Vec<PathBuf> {
    let mut groups: Vec<Mount> =
        mounts::parse(mounts).filter(|mount| mount.kind.starts_with("cgroup")).collect();
    groups.sort_by_key(|mount| (mount.kind != "cgroup2", !mount.options.contains("memory")));
    groups.into_iter().map(|mount| mount.point).collect()
}

/// The process's group for `controller`, or the reason why it is unknown.
fn group(root: &Root, cgroup: &str, mounts: &str, controller: &str) -> Result<Group, Reason> {
    // `ID:CONTROLLERS:PATH`; CONTROLLERS is empty in v2.
    let lines = || cgroup.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let v1 = lines().find(|(controllers, _)| controllers.split(',').any(|name| name == controller));
    let (version, path) = match v1.or_else(|| lines().find(|(controllers, _)| controllers.is_empty())) {
        Some(("", path)) => (Version::V2, path),
        Some((_, path)) => (Version::V1, path),
        None => {
            return Reason::err(format!("this process is in no control group for {controller} ({CGROUP})"));
        }
    };
    let is_candidate = |mount: &Mount| match version {
        Version::V2 => mount.kind == "cgroup2",
        Version::V1 => mount.kind == "cgroup" && mount.has(controller),
    };
    let candidates: Vec<Mount> = mounts::parse(mounts).filter(is_candidate).collect();
    if candidates.is_empty() {
        return Reason::err(format!("the control groups for {controller} are not mounted ({MOUNTINFO})"));
    }
    let below = |mount: &Mount| -> Option<PathBuf> {
        let below = Path::new(path).strip_prefix(&mount.root).ok()?;
        // `/../other`: the process is outside of its cgroup namespace.
        (!below.starts_with("..") && !path.starts_with("/..")).then(|| mount.point.join(below))
    };
    // Of several mounts at one mount point, the last one is visible.
    let Some((mount, dir)) = candidates.iter().rev().find_map(|mount| Some((mount, below(mount)?))) else {
        return Reason::err(format!(
            "the control group {path} of this process is outside of the mounted hierarchies ({MOUNTINFO})"
        ));
    };
    if !root.has_file(dir.join("cgroup.procs")) {
        return Reason::err(format!(
            "the control group of this process is not visible at {}",
            root.path(&dir).display()
        ));
    }
    // In v2 only the root group has no type.
    let not_topmost = version == Version::V2 && root.has_file(mount.point.join("cgroup.type"));
    let in_namespace = root.link(NAMESPACE).is_ok_and(|link| link != Path::new(NAMESPACE_OF_MACHINE));
    Ok(Group {
        version,
        path: path.to_owned(),
        dir,
        mount: mount.point.clone(),
        hidden_above: not_topmost || in_namespace || mount.root != "/",
    })
}

/// The content of the files `v1` or `v2`, by version of the hierarchy, in the process's group for
/// `controller` and its ancestors. Empty if the controller is not mounted; an error if it may be but is not
/// visible.
pub fn settings(root: &Root, controller: &str, v1: &[&str], v2: &[&str]) -> Result<Vec<String>, Reason> {
    let (cgroup, mounts) = (root.read(CGROUP)?, root.read(MOUNTINFO)?);
    let mounted = |mount: Mount| mount.kind == "cgroup2" || mount.kind == "cgroup" && mount.has(controller);
    if !mounts::parse(&mounts).any(mounted) {
        return Ok(Vec::new());
    }
    let group = group(root, &cgroup, &mounts, controller)?;
    let names = if group.version == Version::V1 { v1 } else { v2 };
    let mut settings = Vec::new();
    for dir in group.dir.ancestors().take_while(|dir| dir.starts_with(&group.mount)) {
        for file in names.iter().map(|name| dir.join(name)) {
            match root.read(&file) {
                Ok(text) => settings.push(format!("{}: {}", file.display(), text.trim())),
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(settings)
}

/// The limit with the fewest bytes left, from the group up to the mount point. A limit whose bytes left are unknown
/// may be that one.
///
/// An unreadable limit makes the result an error, for the same reason.
fn tightest(root: &Root, group: &Group, prefix: &str) -> Result<Option<Limit>, ReadError> {
    let (limit_name, used_name) = match group.version {
        Version::V1 => (format!("{prefix}limit_in_bytes"), format!("{prefix}usage_in_bytes")),
        Version::V2 => (format!("{prefix}max"), format!("{prefix}current")),
    };
    let mut tightest: Option<Limit> = None;
    for dir in group.dir.ancestors().take_while(|dir| dir.starts_with(&group.mount)) {
        // Before Linux 5.11, with `memory.use_hierarchy` 0, a v1 limit does not apply to descendants.
        let counts = || root.read(dir.join("memory.use_hierarchy")).map_or(true, |text| text.trim() != "0");
        if dir != group.dir && group.version == Version::V1 && prefix == MEMORY && !counts() {
            break;
        }
        let file = dir.join(&limit_name);
        let bytes = match root.read(&file) {
            Err(error) if error.is_absent() => continue,
            Err(error) => return Err(error),
            Ok(text) => match (text.trim(), text.trim().parse::<u64>()) {
                ("max", _) => continue,
                (_, Ok(bytes)) if bytes >= UNLIMITED => continue,
                (_, Ok(bytes)) => Bytes(bytes),
                (other, Err(_)) => return Err(root.content(file, 1, "a number of bytes or 'max'", other)),
            },
        };
        let used: Reading<Bytes> = root.value(dir.join(&used_name), "a number of bytes").map(Bytes).into();
        // What is used does not matter to a limit of 0.
        let used_of_limit = if bytes == Bytes::ZERO { Reading::Known(Bytes::ZERO) } else { used.clone() };
        let cache =
            if prefix == MEMORY && bytes > Bytes::ZERO { page_cache(root, dir) } else { Ok(Bytes::ZERO) };
        let left =
            used_of_limit.and_then(|used| Ok::<_, Reason>(bytes.saturating_sub(used.saturating_sub(cache?))));
        let limit = Limit { bytes, used, left, file };
        let order = |limit: &Limit| match limit.left {
            Reading::Known(Bytes::ZERO) => (0, Bytes::ZERO),
            Reading::Unknown { .. } => (1, limit.bytes),
            Reading::Known(left) => (2, left),
        };
        if tightest.as_ref().is_none_or(|known| order(&limit) < order(known)) {
            tightest = Some(limit);
        }
    }
    Ok(tightest)
}

/// The page cache charged to a group and its descendants; v1 has other names for these sums.
fn page_cache(root: &Root, dir: &Path) -> Result<Bytes, Reason> {
    let file = dir.join("memory.stat");
    let text = root.read(&file)?;
    let of = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
    };
    let sum = |prefix: &str| {
        Some(Bytes(
            of(&format!("{prefix}inactive_file"))?.saturating_add(of(&format!("{prefix}active_file"))?),
        ))
    };
    let unknown = || Reason::new(format!("{} has no size of the page cache", root.path(&file).display()));
    sum("total_").or_else(|| sum("")).ok_or_else(unknown)
}
