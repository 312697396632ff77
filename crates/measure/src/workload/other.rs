//! Any other program: its backing is set through the C library and the kernel.

use std::ffi::OsString;

use hugewise_evidence::observation::RegionOfInterest;
use hugewise_launch::launcher::Launcher;
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
    pub fn other(command: Vec<String>, root: &Root, own: OwnFigures) -> Workload {
        let program = command.first().map(String::as_str).unwrap_or_default();
        let launcher = Launcher::of(&command, root);
        let name = launcher.as_ref().map_or(program.rsplit('/').next().unwrap_or_default(), Launcher::name);
        let (name, allocator) = (name.to_owned(), allocator(program));
        Workload { name, turns: None, own, kind: WorkloadKind::Other { command, launcher, allocator } }
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

/// A program that most likely starts a JVM gets options for that alone; the memory of others is set through malloc, and
/// a JVM that they start gets its options as well.
pub(super) fn prepare(
    command: &[String],
    launcher: Option<&Launcher>,
    allocator: Option<Allocator>,
    backing: Backing,
    conditions: &Conditions,
) -> Result<Prepared, Reason> {
    let mut prepared = Prepared {
        launch: Launch {
            command: command.iter().map(OsString::from).collect(),
            thp_disabled: backing == Backing::Base,
            ..Launch::default()
        },
        region: RegionOfInterest::Anonymous,
        pools: pool_demand(backing, conditions, ROUNDING).into_iter().collect(),
        shared_memory: false,
        passed: None,
        notes: Vec::new(),
    };
    if !launcher.is_some_and(Launcher::names_java) {
        let settings = MallocSettings::of_program(allocator, backing, conditions.sizes)?;
        prepared.launch.environment = environment(&settings);
        prepared.notes.push(described(&settings));
    }
    let Some(launcher) = launcher else { return Ok(prepared) };
    let passed = launcher.passed(backing)?;
    let (variables, aside) = launcher.variables(&passed.options);
    if launcher.wrapper.is_empty() {
        let set = variables.into_iter().map(|(name, value)| (name, Some(value.into())));
        prepared.launch.environment.extend(set);
    } else {
        // Set after the wrapper, which may change variables.
        let words = launcher.with_environment(&variables);
        prepared.launch.command = words.into_iter().map(OsString::from).collect();
    }
    if launcher.is_known() {
        prepared.region = RegionOfInterest::AnyJavaHeap;
        prepared.pools = pool_demand(backing, conditions, OF_JVM).into_iter().collect();
    }
    prepared.notes.extend(launcher.describe(&passed.options));
    prepared.notes.extend((!aside.is_empty()).then(|| format!("removed {}", aside.join(", "))));
    prepared.passed = Some(passed);
    Ok(prepared)
}
