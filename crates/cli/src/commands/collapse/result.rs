//! The result of `collapse`: schema `hugewise.collapse/2`.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use hugewise_linux::{
    action::Action,
    cgroup::Limit,
    hugepages::headroom::Headroom,
    pages::reason::Reason,
    proc::process::Process,
    reading::Reading,
    units::{Bytes, PageSize, Pages},
};
use hugewise_memory::collapse::{
    admission::AdmissionError,
    candidates::Sum,
    engine::{self, CollapseResult},
    pressure_pauses::Interference,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::words::{actions, before_beginning};
use crate::commands::collapse::candidates::{
    CollapseOptions, ProcessSample, RegionSelection, SelectedRegion,
};

pub use super::words::cause;

/// A GiB, in bytes.
pub const GIB: f64 = 1_073_741_824.0;
const SCHEMA: &str = "hugewise.collapse/2";

/// What `collapse --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CollapseReport {
    pub(super) schema: &'static str,
    /// Process ID.
    pub(super) pid: u32,
    /// `comm`: the name of the process, at most 15 bytes.
    pub(super) name: String,
    /// Command line.
    pub(super) command: Vec<String>,
    /// Whether libjvm is mapped.
    pub(super) is_jvm: bool,
    /// Regions to collapse.
    pub(super) region: RegionSelection,
    /// Size of a huge page, in bytes.
    #[serde(rename = "page_size_bytes")]
    pub(super) page_size: PageSize,
    /// Smallest resident share of a candidate range, 0 to 1.
    pub(super) min_resident_ratio: f64,
    /// Limit of the speed; null if unlimited.
    pub(super) max_bytes_per_second: Option<f64>,
    /// Whether the kernel was allowed to reclaim or compact memory.
    pub(super) allow_reclaim: bool,
    /// How it ended.
    pub(super) outcome: CollapseOutcome,
    /// Why the collapse stopped early or did not start; null otherwise.
    #[serde(rename = "detail")]
    pub(super) cause: Option<String>,
    /// Changes that remove the cause in `detail`; empty if `detail` is null.
    pub(super) actions: Vec<Action>,
    /// Bytes on huge pages in the selected regions before the collapse.
    pub(super) before: Bytes,
    /// Bytes on huge pages in the selected regions afterwards; null if nothing was collapsed or the process
    /// ended.
    pub(super) after: Option<Bytes>,
    /// Candidates for collapse.
    #[serde(rename = "candidates")]
    pub(super) wanted: Sum,
    /// Non-resident bytes in the candidates, by which the process would grow.
    pub(super) holes_bytes: Bytes,
    /// Huge pages that were available before the collapse.
    #[serde(rename = "obtainable")]
    pub(super) room: Reading<AvailableHugePages>,
    /// `MemAvailable` before the collapse, in bytes.
    #[serde(rename = "available_bytes")]
    pub(super) available: Reading<Bytes>,
    /// Selected regions, the largest first.
    pub(super) regions: Vec<CollapsedRegion>,
    /// Collapsed bytes: whole huge pages, holes included.
    pub(super) collapsed_bytes: Bytes,
    /// Bytes that the process released before their collapse.
    pub(super) gone_bytes: Bytes,
    /// Duration including pauses; null if nothing was started.
    pub(super) seconds: Option<f64>,
    /// Mean speed; null if nothing was collapsed.
    pub(super) bytes_per_second: Option<f64>,
    /// Longest single call, an upper bound of the time that a page fault of the process waits; null if
    /// nothing was started.
    pub(super) longest_call_seconds: Option<f64>,
    /// Growth of the process' resident memory, for any reason; negative if it shrank, null if unknown.
    pub(super) grown_bytes: Option<i64>,
    /// Candidates that were not collapsed; adjacent ranges with the same reason are one.
    pub(super) refused: Vec<Refusal>,
    /// Pauses by reason.
    pub(super) paused: Vec<Pause>,
    /// Limits of the reading, and missing privileges.
    pub notes: Vec<String>,
    #[serde(skip)]
    pub(super) seen: ProcessSample,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollapseOutcome {
    /// `--dry-run`.
    DryRun,
    /// There are no candidates.
    NothingToDo,
    /// Not started, because other programs would have had too little memory.
    NotBegun,
    /// Started; the value is the reason for its end.
    #[serde(untagged)]
    Ended(engine::CollapseOutcome),
}

/// Huge pages that are available.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct AvailableHugePages {
    /// Free blocks of the size of a huge page.
    pub(super) free_blocks: Pages,
    /// Free bytes above the watermarks below which the kernel reclaims.
    pub(super) above_watermarks_bytes: Bytes,
    /// Huge pages available without reclaim and compaction.
    pub(super) at_once: Pages,
}

/// A region: all parts of one name, before and after the collapse.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CollapsedRegion {
    /// Name of the region.
    pub(super) name: String,
    /// Resident bytes before the collapse. Memory that is mapped several times is counted once.
    #[serde(rename = "resident_before_bytes")]
    pub(super) resident_before: Bytes,
    /// Bytes on huge pages before the collapse.
    #[serde(rename = "huge_before_bytes")]
    pub(super) huge_before: Bytes,
    /// Resident bytes afterwards; null if not read.
    #[serde(rename = "resident_after_bytes")]
    pub(super) resident_after: Option<Bytes>,
    /// Bytes on huge pages afterwards; null if not read.
    #[serde(rename = "huge_after_bytes")]
    pub(super) huge_after: Option<Bytes>,
    /// Candidates for collapse.
    #[serde(rename = "candidates")]
    pub(super) wanted: Sum,
    /// Non-resident bytes in the candidates.
    pub(super) holes_bytes: Bytes,
    /// Ranges that were skipped because their resident share is below `min_resident_ratio`.
    pub(super) sparse: Sum,
    /// Bytes on base pages that cannot be collapsed, by reason.
    #[serde(rename = "skipped_bytes")]
    pub(super) left_out: BTreeMap<Reason, Bytes>,
}

/// Addresses that were not collapsed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Refusal {
    /// First address.
    pub(super) start: u64,
    /// First address after the range.
    pub(super) end: u64,
    /// The kernel's answer, or why the range was not tried.
    pub(super) reason: String,
}

/// Pauses for one reason.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Pause {
    /// The reason.
    pub(super) reason: Interference,
    /// Number of pauses.
    pub(super) times: u64,
    /// Total duration.
    pub(super) seconds: f64,
}

impl Refusal {
    pub fn new(addresses: &Range<u64>, reason: String) -> Refusal {
        Refusal { start: addresses.start, end: addresses.end, reason }
    }
}

/// The pauses of this work, by reason.
pub fn pauses(done: &CollapseResult) -> Vec<Pause> {
    let pause = |(&reason, pauses): (&Interference, &engine::Pauses)| Pause {
        reason,
        times: pauses.times,
        seconds: pauses.lasted.as_secs_f64(),
    };
    done.pauses.iter().map(pause).collect()
}

/// The regions of two samples, paired by name.
pub fn paired<'a, R>(
    before: &'a BTreeMap<String, R>,
    after: Option<&'a BTreeMap<String, R>>,
) -> Vec<(&'a String, Option<&'a R>, Option<&'a R>)> {
    let names: BTreeSet<&String> = before.keys().chain(after.into_iter().flat_map(BTreeMap::keys)).collect();
    let pair = |name| (name, before.get(name), after.and_then(|after| after.get(name)));
    names.into_iter().map(pair).collect()
}

/// The difference of two amounts; `None` if it does not fit.
pub fn growth(before: Bytes, after: Bytes) -> Option<i64> {
    i64::try_from(i128::from(after.0) - i128::from(before.0)).ok()
}

impl CollapseReport {
    /// The report before the collapse.
    pub fn before(
        process: &Process,
        size: PageSize,
        options: &CollapseOptions,
        mut seen: ProcessSample,
        room: Reading<Headroom>,
        available: Reading<Bytes>,
        refused: Option<AdmissionError>,
    ) -> CollapseReport {
        let wanted = seen.wanted();
        let outcome = match (&refused, options.dry_run) {
            _ if wanted.pages == Pages(0) => CollapseOutcome::NothingToDo,
            (Some(_), false) => CollapseOutcome::NotBegun,
            _ => CollapseOutcome::DryRun,
        };
        let mut report = CollapseReport {
            schema: SCHEMA,
            pid: process.pid,
            name: process.name.clone(),
            command: process.command.clone(),
            is_jvm: seen.is_jvm,
            region: options.region,
            page_size: size,
            min_resident_ratio: f64::from(options.min_present) / 100.0,
            max_bytes_per_second: options.rate.map(|gib| gib * GIB),
            allow_reclaim: options.allow_reclaim,
            outcome,
            cause: refused.as_ref().map(ToString::to_string),
            actions: refused.map(|refused| before_beginning(&refused, size)).unwrap_or_default(),
            before: seen.huge(),
            after: None,
            wanted,
            holes_bytes: wanted.holes(size),
            room: room.map(|room| AvailableHugePages {
                free_blocks: room.blocks,
                above_watermarks_bytes: room.above_watermarks,
                at_once: room.at_once,
            }),
            available,
            regions: Vec::new(),
            collapsed_bytes: Bytes::ZERO,
            gone_bytes: Bytes::ZERO,
            seconds: None,
            bytes_per_second: None,
            longest_call_seconds: None,
            grown_bytes: None,
            refused: Vec::new(),
            paused: Vec::new(),
            notes: std::mem::take(&mut seen.notes),
            seen,
        };
        report.regions = report.compared(None);
        report
    }

    /// Whether the collapse does not start.
    pub fn is_over(&self) -> bool {
        matches!(self.outcome, CollapseOutcome::NothingToDo | CollapseOutcome::NotBegun)
    }

    /// Whether all candidates were collapsed or, with `--dry-run`, the collapse could start.
    pub fn is_fine(&self) -> bool {
        match self.outcome {
            CollapseOutcome::NothingToDo | CollapseOutcome::Ended(engine::CollapseOutcome::Finished) => {
                self.refused.is_empty()
            }
            CollapseOutcome::DryRun => self.cause.is_none(),
            CollapseOutcome::NotBegun | CollapseOutcome::Ended(_) => false,
        }
    }

    pub fn was_interrupted(&self) -> bool {
        self.outcome == CollapseOutcome::Ended(engine::CollapseOutcome::Interrupted)
    }

    /// Adds the result of the collapse, and the sample after it. `limit` is the memory limit of its control group.
    pub fn done(&mut self, done: CollapseResult, after: Option<ProcessSample>, limit: Option<&Limit>) {
        let seconds = done.lasted.as_secs_f64();
        self.outcome = CollapseOutcome::Ended(done.outcome);
        self.cause = cause(done.outcome);
        self.actions = actions(done.outcome, self.pid, limit);
        self.collapsed_bytes = done.collapsed * self.page_size;
        self.gone_bytes = done.gone * self.page_size;
        self.seconds = Some(seconds);
        self.bytes_per_second =
            (done.collapsed.0 > 0 && seconds > 0.0).then(|| self.collapsed_bytes.0 as f64 / seconds);
        self.longest_call_seconds = Some(done.longest_call.as_secs_f64());
        self.refused =
            done.refusals.iter().map(|one| Refusal::new(&one.addresses, one.reason.words())).collect();
        self.paused = pauses(&done);
        if let Some(after) = &after {
            self.after = Some(after.huge());
            self.grown_bytes = growth(self.seen.resident, after.resident);
        }
        self.regions = self.compared(after.as_ref());
    }

    /// The regions of the sample before the collapse and of the sample after it, paired by name.
    fn compared(&self, after: Option<&ProcessSample>) -> Vec<CollapsedRegion> {
        let region = |(name, before, after): (&String, Option<&SelectedRegion>, Option<&SelectedRegion>)| {
            let before = before.cloned().unwrap_or_default();
            CollapsedRegion {
                name: name.clone(),
                resident_before: before.resident,
                huge_before: before.huge,
                resident_after: after.map(|after| after.resident),
                huge_after: after.map(|after| after.huge),
                wanted: before.wanted,
                holes_bytes: before.wanted.holes(self.page_size),
                sparse: before.sparse,
                left_out: before.left_out,
            }
        };
        let all = paired(&self.seen.regions, after.map(|after| &after.regions));
        let mut regions: Vec<CollapsedRegion> = all.into_iter().map(region).collect();
        regions.sort_by_key(|region| std::cmp::Reverse(region.resident_before));
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    pub(super) fn an_outcome_is_one_word() -> Result<(), serde_json::Error> {
        let word = |outcome: CollapseOutcome| serde_json::to_value(outcome);
        assert_eq!(word(CollapseOutcome::DryRun)?, "dry_run");
        assert_eq!(word(CollapseOutcome::Ended(engine::CollapseOutcome::GroupLimit))?, "group_limit");
        Ok(())
    }
}
