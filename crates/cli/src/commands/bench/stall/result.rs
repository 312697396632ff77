//! The result of `bench stall`.

use hugewise_linux::{hugepages::thp::Thp, reading::Reading, units::Pages};
use hugewise_measure::fragmentation::{FragmentationOutcome, Probe, RestoredMemory};
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::record::text;

/// Result of `hugewise bench stall`, schema `hugewise.stall/2`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StallReport {
    /// `hugewise.stall/2`.
    pub(super) schema: &'static str,
    /// THP settings of this machine.
    pub mode: ThpMode,
    /// The fragmentation.
    pub fragmented: FragmentationSummary,
    /// The test load before and after the fragmentation; null if a command ran.
    pub probes: Option<Probes>,
    /// Summary of the recording; null if no command ran.
    pub program: Option<text::RecordReport>,
    /// Whether memory stayed fragmented until the end; false if it was released early because other programs
    /// needed memory.
    pub held_to_the_end: bool,
    /// Free memory and huge-page-sized blocks at the end, compared with before.
    pub returned: RestoredMemory,
}

/// THP settings that decide which page faults wait for huge pages.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ThpMode {
    /// `enabled` of the PMD size, or `/sys/kernel/mm/transparent_hugepage/enabled` if that size inherits it.
    pub enabled: Reading<String>,
    /// `/sys/kernel/mm/transparent_hugepage/defrag`.
    pub defrag: Reading<String>,
}

/// The fragmentation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FragmentationSummary {
    /// Result of the fragmenting process.
    #[serde(flatten)]
    pub outcome: FragmentationOutcome,
    /// Free huge-page-sized blocks before the fragmentation.
    pub blocks_before: Pages,
}

/// Results of the test load.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Probes {
    /// Before the fragmentation.
    pub before: Probe,
    /// On fragmented memory.
    pub fragmented: Probe,
}

impl ThpMode {
    pub fn of(thp: Thp) -> ThpMode {
        let enabled = thp.pmd_enabled().map(|(mode, _)| mode.to_owned());
        ThpMode { enabled: enabled.map_or(thp.enabled, Reading::Known), defrag: thp.defrag }
    }
}
