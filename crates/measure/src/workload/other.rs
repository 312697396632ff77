//! Any other program: its backing is set through the C library and the kernel.

use std::{collections::BTreeMap, ffi::OsString};

use hugewise_evidence::observation::RegionOfInterest;
use hugewise_linux::{
    c_library::with_tunables,
    hugepages::backing::Backing,
    reading::Reason,
    units::{Bytes, PageSize},
};

use super::{Conditions, OwnFigures, Prepared, Workload, WorkloadKind};
use crate::execution::Launch;

const TUNABLES: &str = "GLIBC_TUNABLES";
/// Allowance for the rounding of large allocations to whole huge pages.
const ROUNDING: Bytes = Bytes(64 << 20);

impl Workload {
    /// A program without options for huge pages.
    pub fn other(command: Vec<String>, own: OwnFigures) -> Workload {
        let program = command.first().map(String::as_str).unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default().to_owned();
        Workload { name, turns: None, own, kind: WorkloadKind::Other { command } }
    }
}

/// Upper bound of the demand of malloc'd memory on a pool, with its page size; `None` before the first run on base.
pub(super) fn pool_demand(backing: Backing, conditions: &Conditions) -> Option<(PageSize, Bytes)> {
    let (size, peak) = (conditions.sizes.huge_page_of(backing)?, conditions.peak_on_base?);
    let demand = Bytes(peak.0 + peak.0 / 4) + ROUNDING;
    Some((size, demand.align_up(size).unwrap_or(demand)))
}

pub(super) fn prepare(
    command: &[String],
    backing: Backing,
    conditions: &Conditions,
) -> Result<Prepared, Reason> {
    let mut pools = BTreeMap::new();
    let tunable = match backing {
        Backing::Base => "0".to_owned(),
        Backing::Thp => "1".to_owned(),
        Backing::Hugetlb(named) => {
            pools.extend(pool_demand(backing, conditions));
            named.map_or_else(|| "2".to_owned(), |size| size.bytes().0.to_string())
        }
        Backing::Shm(_) => {
            return Reason::err("only a JVM has an option for SysV shared memory: try hugetlb");
        }
    };
    let ours = [("glibc.malloc.hugetlb", tunable)];
    let tunables = with_tunables("", &ours);
    let value = with_tunables(&std::env::var(TUNABLES).unwrap_or_default(), &ours);
    Ok(Prepared {
        launch: Launch {
            command: command.iter().map(OsString::from).collect(),
            environment: vec![(TUNABLES.to_owned(), Some(value.into()))],
            thp_disabled: backing == Backing::Base,
        },
        region: RegionOfInterest::Anonymous,
        pools,
        shared_memory: false,
        notes: vec![format!("{TUNABLES}={tunables}")],
    })
}
