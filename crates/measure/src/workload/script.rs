//! A shell script: its JVMs take the flags of a backing from a variable.

use hugewise_evidence::observation::RegionOfInterest;
use hugewise_jvm::{large_page_flags, script_launch::ScriptLaunch};
use hugewise_linux::{hugepages::backing::Backing, reading::Reason};

use super::{Conditions, OwnFigures, Prepared, Workload, WorkloadKind, other};
use crate::execution::Launch;

impl Workload {
    pub fn script(script: ScriptLaunch, own: OwnFigures) -> Workload {
        let name = script.script.name().to_owned();
        Workload { name, turns: None, own, kind: WorkloadKind::Script(script) }
    }
}

/// A script that is not known to start a JVM may start any program: malloc's memory gets the backing as well.
pub(super) fn prepare(
    script: &ScriptLaunch,
    backing: Backing,
    conditions: &Conditions,
) -> Result<Prepared, Reason> {
    let options = large_page_flags::of_any_jvm(backing)?;
    let (variables, aside) = script.variables(&options);
    let mut prepared =
        other::prepare(&script.script.with_environment(&variables), None, backing, conditions)?;
    if script.is_of_jvm() {
        prepared.launch = Launch { environment: Vec::new(), ..prepared.launch };
        prepared.notes.clear();
    }
    prepared.notes.insert(0, script.describe(&options));
    prepared.notes.extend((!aside.is_empty()).then(|| format!("removed {}", aside.join(", "))));
    prepared.region = RegionOfInterest::AnyJavaHeap;
    prepared.pools = other::pool_demand(backing, conditions, other::OF_JVM).into_iter().collect();
    Ok(prepared)
}
