//! The gain of THP for random reads on this machine: hardly any program gains more from fewer or cheaper TLB misses.
//!
//! It differs between machines. Where a host backs its guest with small pages, huge pages of the guest shorten
//! the page walk, but an entry of the TLB still holds a small page (`hugewise bench tlb`).

use std::{path::Path, time::Duration};

use fastrand::Rng;
use hugewise_linux::{
    cpu::cache, hugepages::backing::Backing, interrupt::Interrupt, pages::coverage::Coverage,
    reading::Reason, root::Root, units::Bytes,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    execution::ExecutionError,
    machine::available_memory,
    statistics::{self, INTERVAL_CONFIDENCE, PairedRatio, Ratio},
    touch::{Touch, Turn},
    turns::{self, arm::LiveArm},
    workload::native,
};

/// Buffer of each process.
const BYTES: Bytes = Bytes(512 << 20);
/// Starts of both arms.
const STARTS: usize = 5;
/// Turns of each arm in a start.
const CYCLES: usize = 20;
/// Reads of a turn, which take some 20 ms.
const READS: u64 = 1_000_000;
/// Least coverage of the buffer on THP, 0 to 1.
const LEAST_COVERAGE: f64 = 0.95;
/// Longest start of a process.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Time of a random read on THP, relative to base pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RandomRead {
    /// Geometric mean of the starts' ratios, with its 95 % interval; below 1, THP is faster.
    pub ratio: Ratio,
    /// Size of the buffer.
    #[schemars(with = "u64")]
    #[serde(rename = "buffer_bytes")]
    pub buffer: Bytes,
}

impl RandomRead {
    /// Measures it in turns of two processes, which takes some 10 s; changes no setting. `program` is the path of this
    /// program.
    pub fn measure(root: &Root, program: &Path, interrupt: &Interrupt) -> Result<RandomRead, Reason> {
        let (available, needed) = (available_memory(root).into_result()?, Bytes(4 * BYTES.0));
        if available < needed {
            return Reason::err(format!(
                "the measurement needs {needed} of available memory, and {available} is available"
            ));
        }
        let turn = turns::turn(cache::last_level_size(root), BYTES, READS);
        let mut random = Rng::new();
        let starts: Vec<f64> = (0..STARTS)
            .map(|_| one_start(program, turn, &mut random, interrupt))
            .collect::<Result<_, _>>()?;
        let ratio = PairedRatio::of_logarithms(&starts).and_then(|starts| starts.ratio(INTERVAL_CONFIDENCE));
        ratio
            .map(|ratio| RandomRead { ratio, buffer: BYTES })
            .ok_or_else(|| Reason::new(format!("the ratios of {STARTS} starts have no mean: {starts:?}")))
    }
}

/// The logarithm of the ratio of one start of both processes.
fn one_start(program: &Path, turn: Turn, random: &mut Rng, interrupt: &Interrupt) -> Result<f64, Reason> {
    let failed = |error: ExecutionError| Reason::new(error.to_string());
    let mut backings = [Backing::Base, Backing::Thp];
    random.shuffle(&mut backings);
    let start = |backing| {
        let touch = Touch { bytes: BYTES, backing, reads: READS, iterations: 0, warm_up: 1 };
        let mut launch = native::worker(program, &touch);
        launch.command.push("--turns".into());
        LiveArm::start(&launch, Some(START_LIMIT), interrupt).map(|arm| (backing, arm, Vec::new()))
    };
    let mut arms = backings.into_iter().map(start).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    // The first cycle does not count.
    for cycle in 0..=CYCLES {
        random.shuffle(&mut arms);
        for (_, arm, times) in &mut arms {
            let ns = arm.take(turn).map_err(failed)?;
            times.extend((cycle > 0).then_some(ns.ln()));
        }
    }
    arms.sort_by_key(|(backing, ..)| *backing == Backing::Thp);
    let mut times = Vec::new();
    for (backing, arm, of_arm) in arms {
        let touched = native::touched(&arm.finish().map_err(failed)?)?;
        let share = touched.coverage.known().and_then(Coverage::share);
        if backing == Backing::Thp && share.is_none_or(|share| share < LEAST_COVERAGE) {
            let got = share.map_or("an unknown share".to_owned(), |share| format!("{:.0} %", 100.0 * share));
            return Reason::err(format!(
                "{got} of the buffer was on transparent huge pages, and {:.0} % is needed; 'hugewise check' \
                 shows the THP mode",
                100.0 * LEAST_COVERAGE
            ));
        }
        times.push(of_arm);
    }
    let [base, thp] = &times[..] else { return Reason::err("no turns") };
    let ratios: Vec<f64> = base.iter().zip(thp).map(|(base, thp)| thp - base).collect();
    statistics::trimmed_mean(&ratios).ok_or_else(|| Reason::new("no turns"))
}
