//! The result of `split`: schema `hugewise.split/2`.

use std::collections::BTreeMap;

use hugewise_linux::{
    action::Action,
    pages::reason::Reason,
    proc::process::Process,
    reading::Reading,
    units::{Bytes, PageSize, Pages},
};
use hugewise_memory::{
    collapse::{
        candidates::Candidate,
        engine::{self, CollapseResult},
    },
    split::{ZeroEstimate, refusal_words},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    SplitOptions,
    candidates::{self, RegionToSplit, SplitSample},
};
use crate::commands::collapse::{
    candidates::RegionSelection,
    result::{CollapseOutcome, GIB, Pause, Refusal, growth, paired, pauses},
};

const SCHEMA: &str = "hugewise.split/2";
const SKIPPED: &str = "skipped by the kernel, or collapsed again: pinned for I/O, mapped by another process too, or in use \
                       by the kernel at that moment";

/// What `split --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SplitReport {
    pub(super) schema: &'static str,
    /// Process ID.
    pub(super) pid: u32,
    /// `comm`: the name of the process, at most 15 bytes.
    pub(super) name: String,
    /// Command line.
    pub(super) command: Vec<String>,
    /// Whether libjvm is mapped.
    pub(super) is_jvm: bool,
    /// Regions to split.
    pub(super) region: RegionSelection,
    /// Size of a huge page, in bytes.
    #[serde(rename = "page_size_bytes")]
    pub(super) page_size: PageSize,
    /// Limit of the speed; null if unlimited.
    pub(super) max_bytes_per_second: Option<f64>,
    /// How it ended.
    pub(super) outcome: CollapseOutcome,
    /// Why the work stopped early; null otherwise.
    #[serde(rename = "detail")]
    pub(super) cause: Option<String>,
    /// Changes that remove the cause in `detail`; empty if `detail` is null.
    pub(super) actions: Vec<Action>,
    /// Bytes on huge pages in the selected regions before.
    pub(super) before: Bytes,
    /// Bytes on huge pages in the selected regions afterwards; null if nothing was split or the process ended.
    pub(super) after: Option<Bytes>,
    /// Huge pages to split.
    pub(super) pages: Pages,
    /// Zero-filled memory in the huge pages of anonymous memory, which a split gives back; read with `--dry-run`
    /// only.
    pub(super) estimate: Reading<ZeroEstimate>,
    /// Selected regions, the largest first.
    pub(super) regions: Vec<SplitRegion>,
    /// Bytes of the huge pages that were split.
    pub(super) split_bytes: Bytes,
    /// Zero-filled base pages that were given back, from the page table; null if nothing was split or the process
    /// ended.
    pub(super) given_back_bytes: Option<Bytes>,
    /// Bytes that the process released before their turn.
    pub(super) gone_bytes: Bytes,
    /// Duration including pauses; null if nothing was started.
    pub(super) seconds: Option<f64>,
    /// Mean speed; null if nothing was split.
    pub(super) bytes_per_second: Option<f64>,
    /// Longest single call; null if nothing was started.
    pub(super) longest_call_seconds: Option<f64>,
    /// Growth of the process' resident memory, for any reason; negative if it shrank, null if unknown.
    pub(super) grown_bytes: Option<i64>,
    /// Huge pages that were not split; adjacent ranges with the same reason are one.
    pub(super) refused: Vec<Refusal>,
    /// Pauses by reason.
    pub(super) paused: Vec<Pause>,
    /// Limits of the reading, and missing privileges.
    pub notes: Vec<String>,
    #[serde(skip)]
    pub(super) is_dry_run: bool,
    #[serde(skip)]
    pub(super) seen: SplitSample,
}

/// A region: all parts of one name, before and after.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SplitRegion {
    /// Name of the region.
    pub(super) name: String,
    /// Resident bytes before. Memory that is mapped several times is counted once.
    #[serde(rename = "resident_before_bytes")]
    pub(super) resident_before: Bytes,
    /// Bytes on huge pages before.
    #[serde(rename = "huge_before_bytes")]
    pub(super) huge_before: Bytes,
    /// Resident bytes afterwards; null if not read.
    #[serde(rename = "resident_after_bytes")]
    pub(super) resident_after: Option<Bytes>,
    /// Bytes on huge pages afterwards; null if not read.
    #[serde(rename = "huge_after_bytes")]
    pub(super) huge_after: Option<Bytes>,
    /// Huge pages to split.
    pub(super) pages: Pages,
    /// Bytes on huge pages that cannot be split, by reason.
    #[serde(rename = "skipped_bytes")]
    pub(super) left_out: BTreeMap<Reason, Bytes>,
}

impl SplitReport {
    /// The report before the split. `zeros` is `None` if they are not read.
    pub fn before(
        process: &Process,
        size: PageSize,
        options: &SplitOptions,
        mut seen: SplitSample,
        zeros: Option<Reading<ZeroEstimate>>,
        khugepaged_works: bool,
    ) -> SplitReport {
        let pages = Pages((seen.anonymous.len() + seen.shared.len()) as u64);
        let mut notes = std::mem::take(&mut seen.notes);
        if !seen.shared.is_empty() {
            notes.push(format!(
                "{} are shared memory: they stay allocated, and do not count as resident until they are accessed \
                 again",
                Pages(seen.shared.len() as u64) * size
            ));
        }
        if khugepaged_works {
            notes.push(
                "the THP mode is always: khugepaged may collapse the memory again, and new memory is on huge pages"
                    .to_owned(),
            );
        }
        let mut report = SplitReport {
            schema: SCHEMA,
            pid: process.pid,
            name: process.name.clone(),
            command: process.command.clone(),
            is_jvm: seen.is_jvm,
            region: options.region,
            page_size: size,
            max_bytes_per_second: options.rate.map(|gib| gib * GIB),
            outcome: match pages {
                Pages(0) => CollapseOutcome::NothingToDo,
                _ => CollapseOutcome::DryRun,
            },
            cause: None,
            actions: Vec::new(),
            before: seen.huge(),
            after: None,
            pages,
            estimate: zeros.unwrap_or_else(|| Reading::unknown("read with --dry-run only")),
            regions: Vec::new(),
            split_bytes: Bytes::ZERO,
            given_back_bytes: None,
            gone_bytes: Bytes::ZERO,
            seconds: None,
            bytes_per_second: None,
            longest_call_seconds: None,
            grown_bytes: None,
            refused: Vec::new(),
            paused: Vec::new(),
            notes,
            is_dry_run: options.dry_run,
            seen,
        };
        report.regions = report.compared(None);
        report
    }

    /// Whether there is nothing to split.
    pub fn is_over(&self) -> bool {
        self.outcome == CollapseOutcome::NothingToDo
    }

    /// Whether no huge page is left that can be split, or this is a dry run.
    pub fn is_fine(&self) -> bool {
        match self.outcome {
            CollapseOutcome::NothingToDo | CollapseOutcome::DryRun => true,
            CollapseOutcome::Ended(engine::CollapseOutcome::Finished) => self.refused.is_empty(),
            CollapseOutcome::NotBegun | CollapseOutcome::Ended(_) => false,
        }
    }

    pub fn was_interrupted(&self) -> bool {
        self.outcome == CollapseOutcome::Ended(engine::CollapseOutcome::Interrupted)
    }

    /// Adds the result of the split, and the sample after it.
    pub fn done(&mut self, done: &CollapseResult, after: Option<&SplitSample>) {
        self.outcome = CollapseOutcome::Ended(done.outcome);
        self.cause = cause(done.outcome);
        self.actions = actions(done.outcome, self.pid);
        self.split_bytes = done.collapsed * self.page_size;
        self.gone_bytes = done.gone * self.page_size;
        self.longest_call_seconds = Some(done.longest_call.as_secs_f64());
        self.refused = done
            .refusals
            .iter()
            .map(|refusal| Refusal::new(&refusal.addresses, refusal_words(refusal.reason)))
            .collect();
        self.paused = pauses(done);
        if let Some(after) = after {
            self.after = Some(after.huge());
            self.grown_bytes = growth(self.seen.resident, after.resident);
            let skipped = self.skipped(after, done);
            self.split_bytes = self.split_bytes.saturating_sub(Pages(skipped.len() as u64) * self.page_size);
            let ranges = candidates::merged(skipped.into_iter().map(|page| page.addresses));
            self.refused.extend(ranges.iter().map(|range| Refusal::new(range, SKIPPED.to_owned())));
            match candidates::given_back(&after.occupancy, &self.seen.pages()) {
                Ok(bytes) => self.given_back_bytes = Some(bytes),
                Err(error) => self.notes.push(format!("cannot read the pages afterwards: {error}")),
            }
        }
        let seconds = done.lasted.as_secs_f64();
        self.seconds = Some(seconds);
        self.bytes_per_second =
            (self.split_bytes > Bytes::ZERO && seconds > 0.0).then(|| self.split_bytes.0 as f64 / seconds);
        self.regions = self.compared(after);
    }

    /// The pages that are still huge although the kernel refused no call for them.
    pub fn skipped(&self, after: &SplitSample, done: &CollapseResult) -> Vec<Candidate> {
        let was_refused = |page: &Candidate| {
            done.refusals.iter().any(|refusal| refusal.addresses.contains(&page.addresses.start))
        };
        after.still_huge(&self.seen).into_iter().filter(|page| !was_refused(page)).collect()
    }

    /// The regions before and after, paired by name.
    fn compared(&self, after: Option<&SplitSample>) -> Vec<SplitRegion> {
        let region = |(name, before, after): (&String, Option<&RegionToSplit>, Option<&RegionToSplit>)| {
            let before = before.cloned().unwrap_or_default();
            SplitRegion {
                name: name.clone(),
                resident_before: before.resident,
                huge_before: before.huge,
                resident_after: after.map(|after| after.resident),
                huge_after: after.map(|after| after.huge),
                pages: before.to_split,
                left_out: before.left_out,
            }
        };
        let all = paired(&self.seen.regions, after.map(|after| &after.regions));
        let mut regions: Vec<SplitRegion> = all.into_iter().map(region).collect();
        regions.sort_by_key(|region| std::cmp::Reverse(region.resident_before));
        regions
    }
}

/// Why the work ended before all huge pages were tried; `None` if all were tried.
fn cause(outcome: engine::CollapseOutcome) -> Option<String> {
    use engine::CollapseOutcome as Ended;
    let words = match outcome {
        Ended::Finished => return None,
        Ended::ProcessEnded => "the process ended",
        Ended::Interrupted => "interrupted",
        Ended::NotAllowed => "the kernel does not permit process_madvise on this process any more",
        Ended::MemoryPressure => "programs on this machine still waited for memory after a pause of 30 s",
        // Only an allocation of huge pages ends in these.
        Ended::NoRoom | Ended::Fragmented | Ended::GroupLimit => "the kernel refused the calls",
    };
    Some(words.to_owned())
}

/// Changes that permit the work to continue.
fn actions(outcome: engine::CollapseOutcome, pid: u32) -> Vec<Action> {
    use engine::CollapseOutcome as Ended;
    let again = format!("sudo hugewise split {pid}");
    match outcome {
        Ended::Finished | Ended::ProcessEnded => Vec::new(),
        Ended::NotAllowed => {
            vec![Action::new("Run the command on the host, as root of the initial user namespace").by(again)]
        }
        Ended::MemoryPressure => vec![
            Action::new("Continue more slowly when the machine has free memory")
                .by(format!("{again} --rate 0.5")),
        ],
        Ended::Interrupted | Ended::NoRoom | Ended::Fragmented | Ended::GroupLimit => {
            vec![Action::new("Continue with the remaining huge pages").by(again)]
        }
    }
}
