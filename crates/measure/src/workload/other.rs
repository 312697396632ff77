//! Any other program: its backing is set through the C library and the kernel.

use std::{collections::BTreeMap, ffi::OsString};

use hugewise_evidence::observation::RegionOfInterest;
use hugewise_linux::{
    hugepages::backing::Backing,
    reading::Reason,
    units::{Bytes, PageSize},
};
use hugewise_plan::malloc::MallocSettings;

use super::{Conditions, OwnFigures, Prepared, Workload, WorkloadKind};
use crate::execution::Launch;

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

/// Demand of malloc'd memory on a pool of pages of `size`, with an allowance; `None` before the first run on base.
pub(super) fn pool_demand(size: PageSize, conditions: &Conditions) -> Option<Bytes> {
    let peak = conditions.peak_on_base?;
    let demand = Bytes(peak.0 + peak.0 / 4) + ROUNDING;
    Some(demand.align_up(size).unwrap_or(demand))
}

/// The settings, merged with the present variables.
pub(super) fn environment(settings: &MallocSettings) -> Vec<(String, Option<OsString>)> {
    let variables = settings.variables(&|name| std::env::var(name).ok());
    variables.into_iter().map(|(name, value)| (name.to_owned(), Some(value.into()))).collect()
}

/// The settings as text.
pub(super) fn described(settings: &MallocSettings) -> String {
    let variables = settings.variables(&|_| None);
    variables.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

pub(super) fn prepare(
    command: &[String],
    backing: Backing,
    conditions: &Conditions,
) -> Result<Prepared, Reason> {
    let mut pools = BTreeMap::new();
    let settings = match backing {
        Backing::Base => MallocSettings::glibc_base(),
        Backing::Thp => MallocSettings::glibc_thp(),
        Backing::Hugetlb(named) => {
            let Some(size) = conditions.sizes.huge_page_of(backing) else {
                return Reason::err("this kernel has no hugetlb pools");
            };
            pools.extend(pool_demand(size, conditions).map(|demand| (size, demand)));
            MallocSettings::glibc_hugetlb(named, size)
        }
        Backing::Shm(_) => {
            return Reason::err("only a JVM has an option for SysV shared memory: try hugetlb");
        }
    };
    Ok(Prepared {
        launch: Launch {
            command: command.iter().map(OsString::from).collect(),
            environment: environment(&settings),
            thp_disabled: backing == Backing::Base,
        },
        region: RegionOfInterest::Anonymous,
        pools,
        shared_memory: false,
        notes: vec![described(&settings)],
    })
}
