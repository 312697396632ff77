//! Resource limits, shared memory settings, identity and capabilities of this process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    proc::fields::Fields,
    reading::{Reading, Reason},
    root::Root,
    units::{Bytes, Pages},
};

/// Path of the resource limits.
pub const LIMITS: &str = "proc/self/limits";
/// Path of identity and capabilities.
pub const STATUS: &str = "proc/self/status";
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
    /// The effective capabilities.
    pub capabilities: Reading<Capabilities>,
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
    }
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
