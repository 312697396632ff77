//! What was converted, and what not: schema `hugewise.collapse/1`.

use std::collections::BTreeMap;

use hugewise_linux::{
    hugepages::headroom::Headroom,
    pages::reason::Reason,
    proc::process::Process,
    reading::Reading,
    units::{Bytes, PageSize, Pages},
};
use hugewise_memory::collapse::{
    admission::Refused,
    candidates::{Candidate, Sum},
    engine::{self, Conversion},
    interference::Interference,
    refusals,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::words::{before_beginning, next_step};
use crate::commands::collapse::candidates::{self, Seen, Wanted};

pub use super::words::cause;

const SCHEMA: &str = "hugewise.collapse/1";

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Which regions.
    pub region: Wanted,
    /// The size of a huge page.
    pub size: PageSize,
    /// So many percent of a huge page must be present.
    pub min_present: u8,
    /// GiB/s at most.
    pub rate: Option<f64>,
    /// May memory be reclaimed or compacted?
    pub allow_reclaim: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What `collapse --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    pub(super) schema: &'static str,
    /// Number of the process.
    pub(super) pid: u32,
    /// What it calls itself.
    pub(super) name: String,
    /// Its command line.
    pub(super) command: Vec<String>,
    /// Is it a JVM?
    pub(super) is_jvm: bool,
    /// Which regions were meant.
    pub(super) region: Wanted,
    /// The size of a huge page.
    pub(super) page_size: PageSize,
    /// So many percent of a huge page had to be present.
    pub(super) min_present: u8,
    /// GiB in a second, at most; null is as fast as it goes.
    pub(super) rate: Option<f64>,
    /// Could the kernel reclaim or compact memory for it?
    pub(super) allow_reclaim: bool,
    /// How it ended.
    pub(super) outcome: Outcome,
    /// What stood in the way; null where nothing did.
    pub(super) cause: Option<String>,
    /// What to do about it.
    pub(super) next_step: Option<String>,
    /// Bytes on huge pages before, in the regions that were meant.
    pub(super) before: Bytes,
    /// The same afterwards; null where nothing was done, or the process had ended.
    pub(super) after: Option<Bytes>,
    /// What was to be converted.
    pub(super) wanted: Sum,
    /// The memory that holes in it would take.
    pub(super) holes_bytes: Bytes,
    /// What there was for huge pages before.
    pub(super) room: Reading<RoomLeft>,
    /// `MemAvailable` before.
    pub(super) available: Reading<Bytes>,
    /// Regions by name.
    pub(super) regions: Vec<Region>,
    /// What was converted: its huge pages, as a whole.
    pub(super) converted_bytes: Bytes,
    /// Memory that the process had given back before its turn came.
    pub(super) gone_bytes: Bytes,
    /// How long it took, pauses included; null where nothing was done.
    pub(super) seconds: Option<f64>,
    /// Converted in a second; null where nothing was.
    pub(super) gib_per_second: Option<f64>,
    /// The longest single call, for which page faults of the process could have to wait at once.
    pub(super) longest_call_seconds: Option<f64>,
    /// By how much the process' memory grew meanwhile, for whatever reason; negative where it shrank.
    pub(super) grown_bytes: Option<i64>,
    /// What was wanted and not converted; neighbours of the same reason are one.
    pub(super) refused: Vec<Refusal>,
    /// When it rested.
    pub(super) paused: Vec<Pause>,
    /// What else should be known.
    pub notes: Vec<String>,
    #[serde(skip)]
    pub(super) seen: Seen,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing was to be done: it was asked what would be.
    DryRun,
    /// Nothing is there that is not on huge pages and could be.
    NothingToDo,
    /// It was not begun, for it would have cost others.
    NotBegun,
    /// It was begun.
    #[serde(untagged)]
    Converted(engine::Outcome),
}

/// What there is for huge pages.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct RoomLeft {
    /// Free blocks that are as large as a huge page.
    pub(super) free_blocks: Pages,
    /// Free memory above the watermarks at which the kernel begins to reclaim.
    pub(super) above_watermarks_bytes: Bytes,
    /// Huge pages that can be taken without reclaim and compaction.
    pub(super) at_once: Pages,
}

/// A region: all parts of one name.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Region {
    /// What it is for.
    pub(super) name: String,
    /// What was present, memory that is mapped several times counted once.
    pub(super) resident_before: Bytes,
    /// Of that, what was on huge pages.
    pub(super) huge_before: Bytes,
    /// What is present afterwards.
    pub(super) resident_after: Option<Bytes>,
    /// Of that, what is on huge pages.
    pub(super) huge_after: Option<Bytes>,
    /// What was to be converted.
    pub(super) wanted: Sum,
    /// The memory that holes in it would take.
    pub(super) holes_bytes: Bytes,
    /// What was not, since too little of each huge page is present.
    pub(super) sparse: Sum,
    /// What cannot be converted, in bytes by the reason.
    pub(super) left_out: BTreeMap<Reason, Bytes>,
}

/// Addresses that were not converted.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Refusal {
    /// The first address.
    pub(super) start: u64,
    /// The address behind the last.
    pub(super) end: u64,
    /// Why.
    pub(super) reason: String,
}

/// Pauses for one reason.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Pause {
    /// The reason.
    pub(super) reason: Interference,
    /// How many.
    pub(super) times: u64,
    /// How long, together.
    pub(super) seconds: f64,
}

impl Report {
    /// What is known before anything is done.
    pub fn before(
        process: &Process,
        asked: Asked,
        mut seen: Seen,
        room: Reading<Headroom>,
        available: Reading<Bytes>,
        refused: Option<Refused>,
    ) -> Report {
        let wanted = seen.wanted();
        let outcome = match (&refused, asked.dry_run) {
            _ if wanted.pages == Pages(0) => Outcome::NothingToDo,
            (Some(_), false) => Outcome::NotBegun,
            _ => Outcome::DryRun,
        };
        let mut report = Report {
            schema: SCHEMA,
            pid: process.pid,
            name: process.name.clone(),
            command: process.command.clone(),
            is_jvm: seen.is_jvm,
            region: asked.region,
            page_size: asked.size,
            min_present: asked.min_present,
            rate: asked.rate,
            allow_reclaim: asked.allow_reclaim,
            outcome,
            cause: refused.as_ref().map(ToString::to_string),
            next_step: refused.as_ref().map(|refused| before_beginning(refused, asked.size)),
            before: seen.huge(),
            after: None,
            wanted,
            holes_bytes: wanted.holes(asked.size),
            room: room.map(|room| RoomLeft {
                free_blocks: room.blocks,
                above_watermarks_bytes: room.above_watermarks,
                at_once: room.at_once,
            }),
            available,
            regions: Vec::new(),
            converted_bytes: Bytes::ZERO,
            gone_bytes: Bytes::ZERO,
            seconds: None,
            gib_per_second: None,
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

    /// Is there nothing to be done?
    pub fn is_over(&self) -> bool {
        matches!(self.outcome, Outcome::NothingToDo | Outcome::NotBegun)
    }

    /// Did everything get what was wanted, or would it?
    pub fn is_fine(&self) -> bool {
        match self.outcome {
            Outcome::NothingToDo | Outcome::Converted(engine::Outcome::Finished) => self.refused.is_empty(),
            Outcome::DryRun => self.cause.is_none(),
            Outcome::NotBegun | Outcome::Converted(_) => false,
        }
    }

    /// Were we told to stop?
    pub fn was_interrupted(&self) -> bool {
        self.outcome == Outcome::Converted(engine::Outcome::Interrupted)
    }

    /// What is to be converted.
    pub fn candidates(&self) -> &[Candidate] {
        &self.seen.candidates
    }

    /// Adds what was done, and what is there now.
    pub fn done(&mut self, done: Conversion, after: Option<Seen>) {
        let seconds = done.lasted.as_secs_f64();
        self.outcome = Outcome::Converted(done.outcome);
        self.cause = cause(done.outcome);
        self.next_step = next_step(done.outcome, self.pid);
        self.converted_bytes = done.converted * self.page_size;
        self.gone_bytes = done.gone * self.page_size;
        self.seconds = Some(seconds);
        let gib = self.converted_bytes.0 as f64 / f64::from(1 << 30);
        self.gib_per_second = (done.converted.0 > 0 && seconds > 0.0).then(|| gib / seconds);
        self.longest_call_seconds = Some(done.longest_call.as_secs_f64());
        let refusal = |refusal: refusals::Refusal| Refusal {
            start: refusal.addresses.start,
            end: refusal.addresses.end,
            reason: refusal.reason.words(),
        };
        self.refused = done.refusals.into_iter().map(refusal).collect();
        let pause = |(&reason, pauses): (&Interference, &engine::Pauses)| Pause {
            reason,
            times: pauses.times,
            seconds: pauses.lasted.as_secs_f64(),
        };
        self.paused = done.pauses.iter().map(pause).collect();
        if let Some(after) = &after {
            self.after = Some(after.huge());
            let grown = i128::from(after.resident.0) - i128::from(self.seen.resident.0);
            self.grown_bytes = i64::try_from(grown).ok();
        }
        self.regions = self.compared(after.as_ref());
    }

    pub(super) fn compared(&self, after: Option<&Seen>) -> Vec<Region> {
        let all = candidates::compare(&self.seen, after);
        let region = |(name, compared): (String, candidates::Compared)| Region {
            name,
            resident_before: compared.before.resident,
            huge_before: compared.before.huge,
            resident_after: compared.after.as_ref().map(|after| after.resident),
            huge_after: compared.after.as_ref().map(|after| after.huge),
            wanted: compared.before.wanted,
            holes_bytes: compared.before.wanted.holes(self.page_size),
            sparse: compared.before.sparse,
            left_out: compared.before.left_out,
        };
        let mut regions: Vec<Region> = all.into_iter().map(region).collect();
        regions.sort_by_key(|region| std::cmp::Reverse(region.resident_before));
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    pub(super) fn an_outcome_is_one_word() -> Result<(), serde_json::Error> {
        let word = |outcome: Outcome| serde_json::to_value(outcome);
        assert_eq!(word(Outcome::DryRun)?, "dry_run");
        assert_eq!(word(Outcome::Converted(engine::Outcome::GroupLimit))?, "group_limit");
        Ok(())
    }
}
