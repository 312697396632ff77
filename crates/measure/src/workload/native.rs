//! The embedded native workload: the touch worker of this program, in a process of its own.

use std::{collections::BTreeMap, path::PathBuf};

use hugewise_evidence::observation::RegionOfInterest;
use hugewise_linux::{
    hugepages::backing::Backing, pages::coverage::Coverage, reading::Reading, units::Bytes,
};

use super::{Conditions, OwnFigures, Prepared, Workload, WorkloadKind};
use crate::{
    execution::{Execution, Launch},
    statistics,
    touch::{Touch, TouchResult},
};

pub(super) const FIGURES: [(&str, &str); 2] = [("time", "ns/op"), ("populate", "s")];

#[derive(Clone, Debug)]
pub struct NativeTouch {
    program: PathBuf,
    touch: Touch,
}

impl Workload {
    /// The touch experiment; `program` is the path of this program.
    #[must_use]
    pub fn native(program: PathBuf, touch: Touch) -> Workload {
        Workload {
            name: "native".to_owned(),
            own: OwnFigures::default(),
            kind: WorkloadKind::Native(NativeTouch { program, touch }),
        }
    }
}

/// The command of a process that runs one touch experiment and prints a [`TouchResult`] as JSON.
#[must_use]
pub fn worker(program: &PathBuf, touch: &Touch) -> Launch {
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
pub fn touched(execution: &Execution) -> Result<TouchResult, String> {
    serde_json::from_str(&execution.output).map_err(|error| format!("the touch worker's report: {error}"))
}

impl NativeTouch {
    pub(super) fn prepare(&self, backing: Backing, conditions: &Conditions) -> Result<Prepared, String> {
        let mut pools = BTreeMap::new();
        if let (true, Some(size)) = (backing.is_explicit(), conditions.sizes.huge_page_of(backing)) {
            pools.insert(size, self.touch.bytes.align_up(size).unwrap_or(Bytes(u64::MAX)));
        }
        Ok(Prepared {
            launch: worker(&self.program, &Touch { backing, ..self.touch }),
            region: RegionOfInterest::Reported,
            pools,
            shared_memory: false,
            notes: Vec::new(),
        })
    }
}

/// Figures by name, and the coverage or why it is unknown.
pub(super) type Reported = (BTreeMap<String, f64>, Result<Coverage, String>);

pub(super) fn results(execution: &Execution) -> Result<Reported, String> {
    let touched = touched(execution)?;
    // The median, so that a disturbance of one iteration by another program does not count.
    let time = statistics::median(&touched.ns_per_op).ok_or("the touch worker made no iteration")?;
    let figures = FIGURES.iter().zip([time, touched.populate_s]);
    let coverage = match touched.coverage {
        Reading::Known(coverage) => Ok(coverage),
        Reading::Unknown { unknown } => Err(unknown),
    };
    Ok((figures.map(|((name, _), value)| ((*name).to_owned(), value)).collect(), coverage))
}
