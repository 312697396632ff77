//! What a comparison holds: the design, every round, and what was concluded.
//!
//! These are plain values. `compare` of the command line fills in the design and the rounds,
//! [`crate::analysis`] draws the conclusions, and the reports print them.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hugewise_linux::{hugepages::backing::Backing, units::Bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The result of `hugewise compare`, as `--json` prints it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// `hugewise.compare/1`; the number grows when a field changes its meaning.
    pub schema: String,
    /// The version of the tool.
    pub version: String,
    /// When it began, seconds since 1970-01-01 UTC.
    pub started_unix_s: u64,
    /// The machine it ran on.
    pub machine: Machine,
    /// How the experiment was laid out.
    pub design: Design,
    /// What ran: one workload, or one for each value of a parameter list.
    pub cases: Vec<Case>,
    /// What was not tried, and why.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// What was concluded, a row for each case and arm: those of the first case, then those of
    /// the second. Filled in by [`crate::analysis::analyse`].
    pub backings: Vec<BackingResult>,
    /// Every run, warm-ups included, in the order in which they ran.
    pub rounds: Vec<Round>,
    /// What was changed on the machine for the time of the experiment, and put back.
    pub changes: Vec<String>,
    /// What else a reader must know.
    pub notes: Vec<String>,
}

/// The machine an experiment ran on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Architecture, as `uname -m` says it.
    pub architecture: String,
    /// Model name of the CPU, where /proc/cpuinfo tells.
    pub cpu: Option<String>,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// `MemTotal`, in bytes.
    #[schemars(with = "u64")]
    pub memory: Bytes,
}

/// How the experiment was laid out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// What was compared, in the order of the tables; arm 0 is the reference.
    #[schemars(with = "Vec<String>")]
    pub arms: Vec<Backing>,
    /// Blocks: each holds every arm once, in random order.
    pub rounds: usize,
    /// Runs of each arm before the first block, not counted.
    pub warm_up: usize,
    /// The seed of the order.
    pub seed: u64,
    /// One backing against itself.
    pub aa: bool,
    /// Memory in bytes that was left free in pieces before each run, all other free memory being held;
    /// nothing where memory was left as it was. Then runs on `thp` count whatever they got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub fragmented: Option<Bytes>,
}

/// One workload with one set of parameter values.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// A short name: `native`, `java 17.0.15`, or the command's own.
    pub workload: String,
    /// The command line before a backing is put on it; empty for the native workload.
    pub command: Vec<String>,
    /// Values from `--parameter-list`, by name.
    pub parameters: BTreeMap<String, String>,
    /// The figures of this case. The first is the one the verdict is drawn from.
    pub figures: Vec<Figure>,
}

/// A figure that every round gives, in one unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Its name, the key in [`Round::figures`].
    pub name: String,
    /// Its unit: `s`, `bytes`, `ns/op`; empty for a count or a share.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
}

/// Which way a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Like a time.
    Lower,
    /// Like a throughput.
    Higher,
}

/// An arm that was not tried in one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// Index into [`Comparison::cases`].
    pub case: usize,
    /// Index into [`Design::arms`].
    pub arm: usize,
    /// Why, and what would make it possible.
    pub reason: String,
}

/// One run of one arm.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// Index into [`Comparison::cases`].
    pub case: usize,
    /// Index into [`Design::arms`].
    pub arm: usize,
    /// The block, from 0; nothing for a warm-up.
    pub block: Option<usize>,
    /// Why it did not get its pages and is not counted; nothing if it did.
    pub fell_back: Option<String>,
    /// The figures by name; one that could not be read is missing.
    pub figures: BTreeMap<String, f64>,
    /// The share of the resident bytes of the region that matters (the Java heap, the buffer,
    /// malloc'd memory) that lay on huge pages, 0 to 1, as read from the kernel.
    pub coverage: Option<f64>,
    /// Huge pages that could be had at once when it began, where memory had been fragmented for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages_left: Option<u64>,
}

/// What was concluded of one arm in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackingResult {
    /// [`Case::workload`].
    pub workload: String,
    /// [`Case::parameters`].
    pub parameters: BTreeMap<String, String>,
    /// The backing.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// What it means.
    pub verdict: Verdict,
    /// The name of the figure the verdict is drawn from.
    pub figure: String,
    /// That figure against arm 0, within blocks, with a 95 % interval. Turned so that below 1
    /// is always better, whichever way the figure is.
    pub ratio: Option<Ratio>,
    /// The smallest difference (as a share: 0.03 is 3 %) that this many rounds with this much
    /// noise would have shown four times out of five. Nothing where the rounds are too few to tell.
    pub smallest_difference: Option<f64>,
    /// Mean of the counted rounds' coverage, 0 to 1; where no round counts, of those that fell back.
    pub coverage: Option<f64>,
    /// Rounds that count.
    pub rounds: usize,
    /// Rounds that did not get their pages.
    pub rounds_fallen_back: usize,
    /// In words: the cause of a fallback, why it was left out, what the verdict rests on.
    pub reason: Option<String>,
    /// Every figure of the counted rounds.
    pub figures: Vec<FigureSummary>,
}

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// The estimate: the geometric mean of the ratios within blocks.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// One figure over the counted rounds of one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FigureSummary {
    /// [`Figure::name`].
    pub name: String,
    /// [`Figure::unit`].
    pub unit: String,
    /// Mean, in that unit.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Largest.
    pub max: f64,
    /// Against arm 0, within blocks, turned so that below 1 is better.
    pub ratio: Option<Ratio>,
}

/// What a comparison means for one backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The reference itself.
    Base,
    /// Better than base.
    Faster,
    /// Worse than base.
    Slower,
    /// None seen; see [`BackingResult::smallest_difference`].
    NoDifference,
    /// The rounds differ so much that even a large difference would not have been seen.
    TooNoisy,
    /// It never, or too seldom, got its pages.
    FellBack,
    /// It was not tried; the reason says why.
    LeftOut,
}

/// The JSON schema of [`Comparison`], as it is published in docs/schema/compare.json.
#[must_use]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(Comparison)
}
