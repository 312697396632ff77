//! The embedded native workload: the touch worker of this program, in a process of its own.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use hugewise_evidence::observation::RegionOfInterest;
use hugewise_linux::{hugepages::backing::Backing, reading::Reason, units::Bytes};

use super::{Conditions, OwnFigures, Prepared, Workload, WorkloadKind};
use crate::{
    execution::{Execution, Launch},
    statistics,
    touch::{Touch, TouchResult},
};

pub(super) const FIGURES: [(&str, &str); 2] = [("time", "ns/op"), ("populate", "s")];

impl Workload {
    /// The touch experiment, from its start to its end or in turns; `program` is the path of this program.
    pub fn native(program: PathBuf, touch: Touch, turns: bool) -> Workload {
        Workload {
            name: "native".to_owned(),
            turns: turns.then_some(touch.bytes),
            own: OwnFigures::default(),
            kind: WorkloadKind::Native { program, touch },
        }
    }
}

/// The command of a process that runs one touch experiment and prints a [`TouchResult`] as JSON.
pub fn worker(program: &Path, touch: &Touch) -> Launch {
    let arguments = [
        "bench".to_owned(),
        "touch-worker".to_owned(),
        format!("--bytes={}", touch.bytes.0),
        format!("--backing={}", touch.backing),
        format!("--reads={}", touch.reads),
        format!("--iterations={}", touch.iterations),
        format!("--warm-up={}", touch.warm_up),
    ];
    let command = std::iter::once(program.into()).chain(arguments.map(Into::into)).collect();
    Launch { command, thp_disabled: touch.backing == Backing::Base, ..Launch::default() }
}

/// Parses the report of the worker.
pub fn touched(execution: &Execution) -> Result<TouchResult, Reason> {
    serde_json::from_str(&execution.output)
        .map_err(|error| Reason::new(format!("the touch worker's report: {error}")))
}

pub(super) fn prepare(program: &Path, touch: &Touch, backing: Backing, conditions: &Conditions) -> Prepared {
    let mut pools = BTreeMap::new();
    if let (true, Some(size)) = (backing.is_explicit(), conditions.sizes.huge_page_of(backing)) {
        pools.insert(size, touch.bytes.align_up(size).unwrap_or(Bytes(u64::MAX)));
    }
    Prepared {
        launch: worker(program, &Touch { backing, ..*touch }),
        region: RegionOfInterest::Reported,
        pools,
        shared_memory: false,
        passed: None,
        notes: Vec::new(),
    }
}

pub(super) fn figures(touched: &TouchResult) -> Result<BTreeMap<String, f64>, Reason> {
    // The median, so that a disturbance of one iteration by another program does not count.
    let Some(time) = statistics::median(&touched.ns_per_op) else {
        return Reason::err("the touch worker made no iteration");
    };
    let figures = FIGURES.iter().zip([time, touched.populate_s]);
    Ok(figures.map(|((name, _), value)| ((*name).to_owned(), value)).collect())
}
