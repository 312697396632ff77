//! Resource limits, shared memory settings, identity and capabilities of this process.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cgroup::MOUNTINFO,
    proc::{
        fields::Fields,
        mounts::{self, Mount},
    },
    reading::{Reading, Reason},
    root::Root,
    units::{Bytes, Pages},
};

/// Path of the resource limits.
pub const LIMITS: &str = "proc/self/limits";
/// Path of identity and capabilities.
pub const STATUS: &str = "proc/self/status";
/// Path of the ids that the user namespace maps.
pub const UID_MAP: &str = "proc/self/uid_map";
pub const SHMMAX: &str = "proc/sys/kernel/shmmax";
pub const SHMALL: &str = "proc/sys/kernel/shmall";
/// Path of the group that may use SysV shared memory on huge pages.
pub const SHM_GROUP: &str = "proc/sys/vm/hugetlb_shm_group";

/// The limits of this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// `Max locked memory`, the soft limit in bytes; `null` if unlimited.
    #[serde(rename = "memlock_bytes")]
    pub memlock: Reading<Option<Bytes>>,
    /// `Max locked memory`, the hard limit in bytes; `null` if unlimited.
    #[serde(rename = "memlock_hard_bytes")]
    pub memlock_hard: Reading<Option<Bytes>>,
    /// `kernel.shmmax`: the maximum size of a SysV segment, in bytes.
    #[serde(rename = "shmmax_bytes")]
    pub shmmax: Reading<Bytes>,
    /// `kernel.shmall`: the maximum size of all SysV segments together, in base pages.
    #[serde(rename = "shmall_pages")]
    pub shmall: Reading<Pages>,
    /// `vm.hugetlb_shm_group`: the group that may use SysV segments on huge pages without CAP_IPC_LOCK.
    pub hugetlb_shm_group: Reading<u32>,
    /// The effective user id.
    pub uid: Reading<u32>,
    /// The effective group id.
    pub gid: Reading<u32>,
    /// The effective group id and all supplementary ones.
    pub groups: Reading<Vec<u32>>,
    /// The effective capabilities, which are those in its user namespace.
    pub capabilities: Reading<Capabilities>,
    /// Whether it is in a user namespace of its own, as in a rootless container: then its root is an ordinary user of
    /// the machine.
    #[serde(default = "not_recorded")]
    pub in_user_namespace: Reading<bool>,
    /// Whether /sys or /proc/sys is mounted read-only, as in a container.
    #[serde(default = "not_recorded")]
    pub settings_are_read_only: Reading<bool>,
}

/// The value of a field that older recordings lack.
fn not_recorded() -> Reading<bool> {
    Reading::unknown("not recorded by this version of hugewise")
}

impl Limits {
    /// Why no process of this place can change the machine's settings, not even its root; `None` if its root can, or if
    /// that is unknown.
    pub fn host_only(&self) -> Option<&'static str> {
        if self.in_user_namespace.known() == Some(&true) {
            return Some(
                "root of this user namespace is an ordinary user of the machine, by /proc/self/uid_map",
            );
        }
        (self.settings_are_read_only.known() == Some(&true)).then_some("/sys is read-only here")
    }

    /// Whether it may create SysV segments on huge pages, by a capability of the machine's own user namespace or by
    /// the group that may; `None` if a reading is missing.
    ///
    /// Source: `can_do_hugetlb_shm` of the kernel. Before Linux 5.16, the memlock limit permits them as well.
    pub fn may_use_huge_segments(&self) -> Option<bool> {
        let is_inside = *self.in_user_namespace.known().unwrap_or(&false);
        if !is_inside && self.capabilities.known()?.has(Capabilities::IPC_LOCK) {
            return Some(true);
        }
        // The numbers of groups inside are others.
        if is_inside {
            return Some(false);
        }
        Some(self.groups.known()?.contains(self.hugetlb_shm_group.known()?))
    }
}

/// A set of capabilities, one bit each (`linux/capability.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Permits locking memory, and SysV segments on huge pages.
    pub const IPC_LOCK: u32 = 14;
    /// Permits tracing any process. A process traced without it gains no privileges by executing a
    /// set-user-ID program.
    pub const SYS_PTRACE: u32 = 19;
    /// Permits reading page flags and changing settings.
    pub const SYS_ADMIN: u32 = 21;
    /// Permits madvise on other processes.
    pub const SYS_NICE: u32 = 23;
    /// Permits hardware counters regardless of `perf_event_paranoid` (Linux 5.8).
    pub const PERFMON: u32 = 38;

    pub fn has(self, bit: u32) -> bool {
        self.0.checked_shr(bit).is_some_and(|bits| bits & 1 == 1)
    }
}

pub fn read(root: &Root) -> Limits {
    let status = Fields::read(root, STATUS);
    // Real, effective, saved, file system: `Uid: 0 0 0 0`.
    let effective =
        |key| status.get(key, "four numbers", |value| value.split_whitespace().nth(1)?.parse::<u32>().ok());
    let supplementary = status.get("Groups", "numbers", |value| {
        value.split_whitespace().map(|number| number.parse().ok()).collect()
    });
    let gid = effective("Gid");
    let groups = gid.clone().and_then(|gid| {
        let mut groups: Vec<u32> = supplementary.into_result()?;
        groups.push(gid);
        groups.sort_unstable();
        groups.dedup();
        Ok::<_, Reason>(groups)
    });
    Limits {
        memlock: memlock(root, 0).into(),
        memlock_hard: memlock(root, 1).into(),
        shmmax: root.value(SHMMAX, "a number of bytes").map(Bytes).into(),
        shmall: root.value(SHMALL, "a number of pages").map(Pages).into(),
        hugetlb_shm_group: root.value(SHM_GROUP, "a group number").into(),
        uid: effective("Uid"),
        gid,
        groups,
        capabilities: status.get("CapEff", "a hexadecimal set", |value| {
            u64::from_str_radix(value, 16).ok().map(Capabilities)
        }),
        in_user_namespace: in_user_namespace(root).into(),
        settings_are_read_only: root.read(MOUNTINFO).map(|mounts| settings_are_read_only(&mounts)).into(),
    }
}

/// Whether the last mount on /sys or /proc/sys is read-only.
fn settings_are_read_only(text: &str) -> bool {
    let all: Vec<Mount> = mounts::parse(text).collect();
    let is_read_only = |point: &str| {
        all.iter().rfind(|mount| mount.point == Path::new(point)).is_some_and(|on| on.is_read_only)
    };
    is_read_only("sys") || is_read_only("proc/sys")
}

/// Whether the ids of users are mapped.
fn in_user_namespace(root: &Root) -> Result<bool, Reason> {
    let text = match root.read(UID_MAP) {
        // A kernel without user namespaces.
        Err(error) if error.is_absent() => return Ok(false),
        text => text?,
    };
    let mut numbers = text.split_whitespace();
    let first = [numbers.next(), numbers.next(), numbers.next(), numbers.next()];
    Ok(first != [Some("0"), Some("0"), Some("4294967295"), None])
}

/// The soft (column 0) or the hard limit (1) in the line `Max locked memory  8388608  8388608  bytes`.
fn memlock(root: &Root, column: usize) -> Result<Option<Bytes>, Reason> {
    const NAME: &str = "Max locked memory";
    let text = root.read(LIMITS)?;
    let found = text.lines().zip(1..).find_map(|(line, number)| Some((line.strip_prefix(NAME)?, number)));
    let Some((values, line)) = found else {
        return Reason::err(format!("{} has no line '{NAME}'", root.path(LIMITS).display()));
    };
    let word = values.split_whitespace().nth(column).unwrap_or_default();
    if word == "unlimited" {
        return Ok(None);
    }
    let invalid = |_| root.content(LIMITS, line, "a number of bytes or 'unlimited'", values.trim());
    Ok(Some(Bytes(word.parse().map_err(invalid)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree;

    #[test]
    fn the_place_decides_what_its_root_may_do() {
        let of_machine = "         0          0 4294967295\n";
        let mounted = |options: &str| format!("24 29 0:22 / /sys {options} shared:7 - sysfs sysfs rw\n");
        for (map, options, inside, host_only, may) in [
            (of_machine, "rw,nosuid", false, false, Some(true)),
            (of_machine, "ro,nosuid", false, true, Some(true)),
            ("0 100000 65536\n", "rw", true, true, Some(false)),
        ] {
            let status = "Gid:\t0\t0\t0\t0\nGroups:\t0 \nCapEff:\t0000000000004000\n";
            let mounts = mounted(options);
            let files = [(UID_MAP, map), (MOUNTINFO, &*mounts), (STATUS, status), (SHM_GROUP, "0\n")];
            let (_dir, root) = tree(&files);
            let limits = read(&root);
            assert_eq!(limits.in_user_namespace, Reading::Known(inside), "{map}");
            assert_eq!(limits.host_only().is_some(), host_only, "{map} {options}");
            assert_eq!(limits.may_use_huge_segments(), may, "{map}");
        }
    }

    #[test]
    fn limits_identity_and_capabilities_are_read() {
        let (_dir, root) = tree(&[
            (
                LIMITS,
                "Max file size  unlimited unlimited bytes\nMax locked memory   65536   unlimited  bytes \n",
            ),
            (
                STATUS,
                "Name:\tjava\nUid:\t7\t1000\t7\t7\nGid:\t5\t100\t5\t5\nGroups:\t27 100 \nCapEff:\t0000000000204000\n",
            ),
            (SHMMAX, "18446744073692774399\n"),
            (SHM_GROUP, "27\n"),
        ]);
        let limits = read(&root);
        assert_eq!(limits.memlock, Reading::Known(Some(Bytes(65536))));
        assert_eq!(limits.memlock_hard, Reading::Known(None));
        assert_eq!(limits.shmmax, Reading::Known(Bytes(18_446_744_073_692_774_399)));
        assert!(limits.shmall.reason().is_some());
        assert_eq!((limits.uid, limits.groups), (Reading::Known(1000), Reading::Known(vec![27, 100])));
        let has = limits.capabilities.map(|c| {
            [Capabilities::IPC_LOCK, Capabilities::SYS_ADMIN, Capabilities::PERFMON, 99].map(|bit| c.has(bit))
        });
        assert_eq!(has, Reading::Known([true, true, false, false]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_makes_it_panic(text in any::<String>()) {
            let limits = format!("Max locked memory{text}");
            let status = format!("Uid:{text}\nGid:{text}\nGroups:{text}\nCapEff:{text}");
            let (_dir, root) = tree(&[(LIMITS, &limits), (STATUS, &status), (SHMMAX, &text)]);
            let _ = read(&root);
        }
    }
}
