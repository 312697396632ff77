//! The data of a comparison: design, rounds and results.
//!
//! Plain values: [`crate::experiment`] fills in the design and the rounds, [`crate::analysis`] the results,
//! and the reports print them.

mod arm_backing;
pub mod effect;
pub mod live;
pub mod parameters;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hugewise_linux::{action::Action, hugepages::backing::Backing, units::Bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::arm_backing::{ArmBacking, ProgramBacking};
use self::{effect::Effect, live::Live};
pub use crate::verdict::Better;
use crate::{random_read::RandomRead, statistics::Ratio, verdict::Verdict};

/// The result of `hugewise compare --json`; docs/schema/compare.json is its schema.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// `hugewise.compare/2`; the number increases when a field changes its meaning.
    pub schema: String,
    /// Version of hugewise.
    pub version: String,
    /// Start of the experiment, in seconds since 1970-01-01 UTC.
    pub started_unix_seconds: u64,
    /// The machine of the experiment.
    pub machine: Machine,
    /// Design of the experiment.
    pub design: Design,
    /// The workload, once for each combination of parameter values.
    pub cases: Vec<Case>,
    /// Arms that did not run, with the reasons.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// Results, one row per arm, grouped by case. Filled in by [`crate::analysis::analyse`].
    pub backings: Vec<BackingResult>,
    /// Effects of the backing of each of several servers, grouped by case; absent in others. Filled in by
    /// [`crate::analysis::analyse`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// All runs in the order of execution, including warm-ups.
    pub rounds: Vec<Round>,
    /// The process, transitions and turns of a live comparison; absent in others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
    /// Settings that were changed for the experiment and restored.
    pub changes: Vec<String>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Whether an arm of a case is left out.
    pub fn leaves_out(&self, case: usize, arm: usize) -> bool {
        self.left_out.iter().any(|left| (left.case, left.arm) == (case, arm))
    }
}

/// The machine of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Architecture, as reported by `uname -m`.
    pub architecture: String,
    /// Model name of the CPU from /proc/cpuinfo; null if it is not listed there.
    pub cpu: Option<String>,
    /// Number of CPUs that this process may use.
    pub cpus: usize,
    /// `MemTotal`, in bytes.
    #[schemars(with = "u64")]
    #[serde(rename = "memory_bytes")]
    pub memory: Bytes,
    /// Whether the host of this virtual machine reclaims memory as soon as it is free (free page reporting),
    /// so that populating memory includes getting it back.
    #[serde(default)]
    pub host_takes_back_free_memory: bool,
    /// Time of a random read on THP, relative to base pages; absent if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_read: Option<RandomRead>,
}

/// Design of the experiment.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// The backings in the order of the tables; arm 0 is the reference.
    #[schemars(with = "Vec<String>")]
    pub arms: Vec<ArmBacking>,
    /// Number of blocks; each holds every arm once, in random order.
    pub rounds: usize,
    /// Uncounted runs of each arm before the first block.
    pub warm_up: usize,
    /// Seed of the random order.
    pub seed: u64,
    /// Whether one backing is compared with itself (an A/A test).
    pub aa: bool,
    /// Whether the arms of a block were alive at once and took turns, in at least one case; else each ran
    /// from its start to its end.
    #[serde(default)]
    pub turns: bool,
    /// Memory that was free in pieces during each run while all other free memory was held, in bytes; absent
    /// without `--fragmented`. With it, runs on `thp` count regardless of their coverage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    #[serde(rename = "fragmented_bytes")]
    pub fragmented: Option<Bytes>,
}

impl Design {
    /// Whether memory outside the Java heap is compared.
    pub fn compares_off_heap(&self) -> bool {
        self.arms.iter().any(|arm| arm.off_heap().is_some())
    }

    /// The names of several servers, in the order of their start; empty for one program.
    pub fn servers(&self) -> Vec<&str> {
        let servers = self.arms.first().map(ArmBacking::servers).unwrap_or_default();
        servers.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// A workload with one set of parameter values.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// Short name: `native`, `java 17.0.15`, or the name of the command.
    pub workload: String,
    /// Whether hugewise contains the workload.
    #[serde(default)]
    pub embedded: bool,
    /// The command line without the options of a backing; empty for the native workload, and for several servers.
    pub command: Vec<String>,
    /// Several servers, in the order of their start; absent for one program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<CaseServer>,
    /// The driver, if the command is that of a server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub driver: Vec<String>,
    /// Values from `--parameter-list`, by name.
    pub parameters: BTreeMap<String, String>,
    /// The figures of this case; the first decides the verdict.
    pub figures: Vec<Figure>,
}

/// One of several servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseServer {
    /// Its name.
    pub name: String,
    /// Short name of its program, as in [`Case::workload`].
    pub workload: String,
    /// Its command line without the options of a backing.
    pub command: Vec<String>,
}

/// A figure that every round reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Name, which is the key in [`Round::figures`].
    pub name: String,
    /// Unit: `s`, `bytes`, `ns/op`; empty for a count or a share.
    pub unit: String,
    /// The direction of improvement.
    pub better: Better,
}

/// An arm that did not run in one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// Index into [`Comparison::cases`].
    pub case: usize,
    /// Index into [`Design::arms`].
    pub arm: usize,
    /// Why it did not run, and what would make it possible.
    pub reason: String,
}

/// One run of one arm.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// Index into [`Comparison::cases`].
    pub case: usize,
    /// Index into [`Design::arms`].
    pub arm: usize,
    /// Index of the block, from 0; null for a warm-up.
    pub block: Option<usize>,
    /// Why the run does not count: it did not get its pages, or its coverage is unknown; null if it counts.
    pub fell_back: Option<String>,
    /// The figures by name; figures that could not be read are absent.
    pub figures: BTreeMap<String, f64>,
    /// The turns of this start of the embedded workload; absent for a command, and without turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
    /// Share of the region's resident bytes on huge pages, 0 to 1, as the kernel reports it; null if unknown.
    /// The region is the Java heap, the buffer, or all anonymous memory and hugetlb pages. Of several servers, the
    /// coverage is in `server_coverage`, and null here.
    pub coverage: Option<f64>,
    /// The same of the memory outside the Java heap; absent without `--off-heap`, and if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_heap_coverage: Option<f64>,
    /// The coverage of each of several servers, in the order of their start; absent for one program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_coverage: Vec<ServerCoverage>,
    /// Huge pages that were free at the start of the run; absent without `--fragmented`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages_left: Option<u64>,
}

/// The coverage of one of several servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerCoverage {
    /// Name of the server.
    pub server: String,
    /// Share of its region's resident bytes on huge pages, 0 to 1; null if unknown.
    pub coverage: Option<f64>,
}

/// The turns of one start of one arm: in every cycle each arm of the block took one turn, in random order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Turns {
    /// Name of the figure that the turns measured.
    pub figure: String,
    /// Its value in each cycle, in its unit.
    pub values: Vec<f64>,
    /// CPU on which all arms of the block ran; null if they could not be pinned.
    pub cpu: Option<u32>,
}

/// Result for one arm in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackingResult {
    /// The name from [`Case::workload`].
    pub workload: String,
    /// The values from [`Case::parameters`].
    pub parameters: BTreeMap<String, String>,
    /// The backing.
    #[schemars(with = "String")]
    pub backing: ArmBacking,
    /// The backing of memory outside the Java heap; absent if it was not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub off_heap_backing: Option<Backing>,
    /// The verdict.
    pub verdict: Verdict,
    /// Name of the figure that decides the verdict.
    pub figure: String,
    /// That figure divided by the one of arm 0, within blocks, with a 95 % interval; inverted if higher is
    /// better, so that below 1 is always better. Null without enough rounds.
    pub ratio: Option<Ratio>,
    /// Smallest difference, as a share (0.03 is 3 %), that this number of rounds with this noise would detect
    /// four times out of five; null with too few rounds.
    #[serde(rename = "smallest_difference_ratio")]
    pub smallest_difference: Option<f64>,
    /// The ratio when the host was quiet and when it was busy; absent for a command, without turns, or if the
    /// ratio does not certainly depend on the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_by_load: Option<RatioByLoad>,
    /// The times between which nine in ten turns lie, in the unit of the figure; absent for a command, and
    /// without turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns_between: Option<[f64; 2]>,
    /// Mean coverage of the counted rounds, 0 to 1, or, with the verdict "fell_back", of those that fell
    /// back; null if unknown.
    pub coverage: Option<f64>,
    /// The same of the memory outside the Java heap; absent without `--off-heap`, and if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_heap_coverage: Option<f64>,
    /// The same of each of several servers, in the order of their start; absent for one program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_coverage: Vec<ServerCoverage>,
    /// Number of counted rounds.
    pub rounds: usize,
    /// Number of rounds that did not get their pages, or whose coverage is unknown.
    pub rounds_fallen_back: usize,
    /// Number of blocks that do not count for the ratio, because the host was busiest then; 0 for a command,
    /// and without turns.
    #[serde(default)]
    pub blocks_too_busy: usize,
    /// In words: the cause of a fallback, why the arm was left out, or the basis of the verdict.
    #[serde(rename = "detail")]
    pub reason: Option<String>,
    /// Actions after this verdict.
    pub actions: Vec<Action>,
    /// Summaries of all figures over the same rounds.
    pub figures: Vec<FigureSummary>,
}

/// Ratio of an arm in the quietest and in the busiest quarter of its turns, by the times of the turns before
/// and after.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatioByLoad {
    /// The ratio when the host was quiet.
    #[serde(rename = "quietest_ratio")]
    pub quietest: f64,
    /// The ratio when it was busy.
    #[serde(rename = "busiest_ratio")]
    pub busiest: f64,
}

/// Summary of one figure over the rounds of one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FigureSummary {
    /// The name from [`Figure::name`].
    pub name: String,
    /// The unit from [`Figure::unit`].
    pub unit: String,
    /// Mean, in that unit.
    pub mean: f64,
    /// Minimum, in that unit.
    pub min: f64,
    /// Median, in that unit.
    pub median: f64,
    /// Maximum, in that unit.
    pub max: f64,
    /// Divided by the figure of arm 0, within blocks, inverted so that below 1 is better; null for arm 0.
    pub ratio: Option<Ratio>,
}

#[cfg(test)]
impl Comparison {
    /// A comparison of these arms, still without cases and rounds.
    pub(crate) fn of_arms(arms: Vec<ArmBacking>) -> Comparison {
        Comparison {
            schema: String::new(),
            version: String::new(),
            started_unix_seconds: 0,
            machine: Machine {
                kernel: String::new(),
                architecture: String::new(),
                cpu: None,
                cpus: 2,
                memory: Bytes(8 << 30),
                host_takes_back_free_memory: false,
                random_read: None,
            },
            design: Design {
                arms,
                rounds: 0,
                warm_up: 0,
                seed: 1,
                aa: false,
                turns: false,
                fragmented: None,
            },
            cases: Vec::new(),
            left_out: Vec::new(),
            backings: Vec::new(),
            effects: Vec::new(),
            rounds: Vec::new(),
            live: None,
            changes: Vec::new(),
            notes: Vec::new(),
        }
    }
}
