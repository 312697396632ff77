//! Any other program: its backing is set through the C library and the kernel.

use std::ffi::OsString;

use hugewise_evidence::observation::RegionOfInterest;
use hugewise_linux::{
    c_library::{self, Allocator},
    executable::find,
    hugepages::backing::Backing,
    reading::Reason,
    root::Root,
    units::{Bytes, PageSize},
};
use hugewise_plan::malloc::MallocSettings;

use super::{Conditions, OwnFigures, Prepared, Workload, WorkloadKind};
use crate::execution::Launch;

/// Allowance for the rounding of large allocations to whole huge pages.
pub(super) const ROUNDING: Bytes = Bytes(64 << 20);
/// The same for a JVM whose flags are unknown. It takes the pages of its code cache at its start, of which only a part
/// is resident on base pages: by default 240 MiB.
pub(super) const OF_JVM: Bytes = Bytes(ROUNDING.0 + (240 << 20));

impl Workload {
    /// A program without options for huge pages.
    pub fn other(command: Vec<String>, own: OwnFigures) -> Workload {
        let program = command.first().map(String::as_str).unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default().to_owned();
        let allocator = allocator(program);
        Workload { name, turns: None, own, kind: WorkloadKind::Other { command, allocator } }
    }
}

/// The malloc that a program is linked with, if it is known to be none of its C library's.
fn allocator(program: &str) -> Option<Allocator> {
    let file = std::path::absolute(find(program.as_ref()).ok()?).ok()?;
    c_library::of_program(&Root::live(), file.strip_prefix("/").ok()?).ok()?.allocator
}

/// Demand on a pool of a program whose memory on base pages is known, with the page size and an `allowance`; `None` if
/// `backing` has no pool, and before the first run on base.
pub(super) fn pool_demand(
    backing: Backing,
    conditions: &Conditions,
    allowance: Bytes,
) -> Option<(PageSize, Bytes)> {
    let size = conditions.sizes.huge_page_of(backing).filter(|_| backing.is_explicit())?;
    let memory = conditions.memory_on_base?;
    let demand = Bytes(memory.0 + memory.0 / 4) + allowance;
    Some((size, demand.align_up(size).unwrap_or(demand)))
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
    allocator: Option<Allocator>,
    backing: Backing,
    conditions: &Conditions,
) -> Result<Prepared, Reason> {
    let settings = MallocSettings::of_program(allocator, backing, conditions.sizes)?;
    Ok(Prepared {
        launch: Launch {
            command: command.iter().map(OsString::from).collect(),
            environment: environment(&settings),
            thp_disabled: backing == Backing::Base,
            user: None,
        },
        region: RegionOfInterest::Anonymous,
        pools: pool_demand(backing, conditions, ROUNDING).into_iter().collect(),
        shared_memory: false,
        notes: vec![described(&settings)],
    })
}
