//! The control group limits that apply to the caller, in cgroup v1, v2, or both at once.

pub mod processes;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    reading::Reading,
    root::{ReadError, Root},
    units::{Bytes, PageSize},
};

/// Where the caller's groups stand.
pub const CGROUP: &str = "proc/self/cgroup";
/// Where the mounts stand.
pub const MOUNTINFO: &str = "proc/self/mountinfo";

/// A v1 limit this large is none: the kernel's own "no limit" is 2⁶³ rounded down to a page.
const V1_UNLIMITED: u64 = 1 << 62;

/// The limits on memory and on huge pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupLimits {
    /// The caller's group for memory.
    pub memory_group: Reading<Group>,
    /// The smallest memory limit of that group and those above it; none is unlimited. It does not count
    /// pages of hugetlb pools (but on v2 where `memory_hugetlb_accounting` is a mount option).
    pub memory: Reading<Option<Limit>>,
    /// The caller's group for huge pages.
    pub hugetlb_group: Reading<Group>,
    /// The limits on pool pages, for each size.
    pub hugetlb: Vec<HugetlbLimits>,
    /// Are pool pages charged to the memory limit too?
    pub memory_counts_hugetlb: Reading<bool>,
}

/// Which version of control groups is in charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// The group the caller is in, for one controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// Which version has the controller.
    pub version: Version,
    /// Its path, as the kernel tells the caller.
    pub path: String,
    /// Its folder, relative to the root.
    pub dir: PathBuf,
    /// Where the walk upwards ends, relative to the root.
    pub mount: PathBuf,
    /// Are there groups above the mount, whose limits cannot be seen from here (as in a container)?
    pub hidden_above: bool,
}

/// The smallest limit on the way up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// The limit.
    pub bytes: Bytes,
    /// How much of it is used already.
    pub used: Reading<Bytes>,
    /// Where it stands, relative to the root.
    pub file: PathBuf,
}

/// The limits on pool pages of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HugetlbLimits {
    /// The size.
    pub page_size: PageSize,
    /// Beyond this, touching a page kills with SIGBUS.
    pub touch: Reading<Option<Limit>>,
    /// Beyond this, mapping fails with ENOMEM.
    pub reserve: Reading<Option<Limit>>,
}

/// Reads the limits that apply to the caller, for pools of these sizes.
#[must_use]
pub fn read(root: &Root, sizes: &[PageSize]) -> CgroupLimits {
    let files = root.read(CGROUP).and_then(|cgroup| Ok((cgroup, root.read(MOUNTINFO)?)));
    let group = |controller: &str| match &files {
        Ok((cgroup, mounts)) => group(root, cgroup, mounts, controller).into(),
        Err(error) => Reading::unknown(error),
    };
    let memory_group = group("memory");
    let hugetlb_group = group("hugetlb");
    let hugetlb = sizes.iter().map(|&page_size| {
        let name = controller_name(page_size);
        HugetlbLimits {
            page_size,
            touch: smallest_of(root, &hugetlb_group, &format!("hugetlb.{name}.")),
            reserve: smallest_of(root, &hugetlb_group, &format!("hugetlb.{name}.rsvd.")),
        }
    });
    CgroupLimits {
        memory: smallest_of(root, &memory_group, "memory."),
        hugetlb: hugetlb.collect(),
        memory_counts_hugetlb: match (&memory_group, &files) {
            (Reading::Known(group), Ok((_, mounts))) => {
                let counts =
                    |mount: &Mount| mount.options.split(',').any(|o| o == "memory_hugetlb_accounting");
                Reading::Known(group.version == Version::V2 && v2_mounts(mounts).iter().any(counts))
            }
            (group, _) => group.clone().map(|_| false),
        },
        memory_group,
        hugetlb_group,
    }
}

/// The size in the kernel's names for this controller: `2MB`, `1GB`, `64KB`.
fn controller_name(size: PageSize) -> String {
    match size.log2() {
        30.. => format!("{}GB", size.bytes().0 >> 30),
        20..30 => format!("{}MB", size.bytes().0 >> 20),
        _ => format!("{}KB", size.bytes().0 >> 10),
    }
}

/// One line of /proc/self/mountinfo.
#[derive(Debug)]
struct Mount {
    /// The part of the file system that is mounted.
    root: String,
    /// Where, relative to the root.
    point: PathBuf,
    kind: String,
    options: String,
}

/// `id parent major:minor ROOT POINT options [optional …] - KIND source OPTIONS`
fn parse_mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let mut after = after.split(' ');
    Some(Mount {
        root: unescape(before.next()?),
        point: PathBuf::from(unescape(before.next()?).trim_start_matches('/')),
        kind: after.next()?.to_owned(),
        options: after.nth(1).unwrap_or_default().to_owned(),
    })
}

/// White space and backslashes stand as three octal digits: `\040`.
fn unescape(text: &str) -> String {
    let mut pieces = text.split('\\');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&piece[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(piece);
            }
        }
    }
    plain
}

/// Where hierarchies are mounted, relative to the root: v2 first, of v1 that of memory first.
pub(crate) fn mount_points(mounts: &str) -> Vec<PathBuf> {
    let groups = mounts.lines().filter_map(parse_mount).filter(|mount| mount.kind.starts_with("cgroup"));
    let mut groups: Vec<Mount> = groups.collect();
    groups.sort_by_key(|mount| (mount.kind != "cgroup2", !mount.options.contains("memory")));
    groups.into_iter().map(|mount| mount.point).collect()
}

fn v2_mounts(mounts: &str) -> Vec<Mount> {
    mounts.lines().filter_map(parse_mount).filter(|mount| mount.kind == "cgroup2").collect()
}

/// The caller's group for `controller`, or why it cannot be seen.
fn group(root: &Root, cgroup: &str, mounts: &str, controller: &str) -> Result<Group, String> {
    // `ID:CONTROLLERS:PATH`; v2 has no controllers there.
    let lines = || cgroup.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let v1 = lines().find(|(controllers, _)| controllers.split(',').any(|name| name == controller));
    let (version, path) = match v1.or_else(|| lines().find(|(controllers, _)| controllers.is_empty())) {
        Some(("", path)) => (Version::V2, path),
        Some((_, path)) => (Version::V1, path),
        None => return Err(format!("the caller is in no control group for {controller} ({CGROUP})")),
    };
    let candidates = match version {
        Version::V2 => v2_mounts(mounts),
        Version::V1 => {
            let has_it = |mount: &Mount| mount.options.split(',').any(|name| name == controller);
            let v1 = mounts.lines().filter_map(parse_mount).filter(|mount| mount.kind == "cgroup");
            v1.filter(has_it).collect()
        }
    };
    if candidates.is_empty() {
        return Err(format!("the control groups for {controller} are not mounted ({MOUNTINFO})"));
    }
    let below = |mount: &Mount| -> Option<PathBuf> {
        let below = Path::new(path).strip_prefix(&mount.root).ok()?;
        // `/../other`: the caller was moved out of the namespace it sees.
        (!below.starts_with("..") && !path.starts_with("/..")).then(|| mount.point.join(below))
    };
    // The last mount at one place is the one on top.
    let Some((mount, dir)) = candidates.iter().rev().find_map(|mount| Some((mount, below(mount)?))) else {
        return Err(format!("the caller's group {path} lies outside of what is mounted here ({MOUNTINFO})"));
    };
    if !root.has_file(dir.join("cgroup.procs")) {
        return Err(format!("the caller's group is not to be seen at {}", root.path(&dir).display()));
    }
    // Only the topmost group of v2 has no type.
    let not_topmost = version == Version::V2 && root.has_file(mount.point.join("cgroup.type"));
    Ok(Group {
        version,
        path: path.to_owned(),
        dir,
        mount: mount.point.clone(),
        hidden_above: not_topmost || mount.root != "/",
    })
}

/// Files of these names in the caller's group for `controller` and in those above it, with their content: v1
/// and v2 have names of their own. None where the controller is not to be had here; an error where it may be
/// and cannot be seen.
pub fn settings(root: &Root, controller: &str, v1: &[&str], v2: &[&str]) -> Result<Vec<String>, String> {
    let read = |path: &str| root.read(path).map_err(|error| error.to_string());
    let (cgroup, mounts) = (read(CGROUP)?, read(MOUNTINFO)?);
    let has_it = |mount: &Mount| mount.options.split(',').any(|name| name == controller);
    let mounted = |mount: Mount| mount.kind == "cgroup2" || mount.kind == "cgroup" && has_it(&mount);
    if !mounts.lines().filter_map(parse_mount).any(mounted) {
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
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Ok(settings)
}

fn smallest_of(root: &Root, group: &Reading<Group>, prefix: &str) -> Reading<Option<Limit>> {
    group.clone().and_then(|group| smallest(root, &group, prefix))
}

/// The smallest limit on the way from the group up to the mount.
///
/// One that is there and cannot be read makes the answer unknown: it could be the smallest.
fn smallest(root: &Root, group: &Group, prefix: &str) -> Result<Option<Limit>, ReadError> {
    let (limit_name, used_name) = match group.version {
        Version::V1 => (format!("{prefix}limit_in_bytes"), format!("{prefix}usage_in_bytes")),
        Version::V2 => (format!("{prefix}max"), format!("{prefix}current")),
    };
    let mut smallest: Option<Limit> = None;
    for dir in group.dir.ancestors().take_while(|dir| dir.starts_with(&group.mount)) {
        // Before Linux 5.11 a v1 group could be set not to count for those below it.
        let counts = || root.read(dir.join("memory.use_hierarchy")).map_or(true, |text| text.trim() != "0");
        if dir != group.dir && group.version == Version::V1 && prefix == "memory." && !counts() {
            break;
        }
        let file = dir.join(&limit_name);
        let bytes = match root.read(&file) {
            Err(error) if error.is_absent() => continue,
            Err(error) => return Err(error),
            Ok(text) => match (text.trim(), text.trim().parse::<u64>()) {
                ("max", _) => continue,
                (_, Ok(bytes)) if group.version == Version::V1 && bytes >= V1_UNLIMITED => continue,
                (_, Ok(bytes)) => Bytes(bytes),
                (other, Err(_)) => return Err(root.content(file, 1, "a number of bytes or 'max'", other)),
            },
        };
        if smallest.as_ref().is_none_or(|limit| bytes < limit.bytes) {
            let used = root.value(dir.join(&used_name), "a number of bytes").map(Bytes).into();
            smallest = Some(Limit { bytes, used, file });
        }
    }
    Ok(smallest)
}
