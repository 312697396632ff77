//! The result of `bench stall`: how memory was fragmented, what it did to a program, and what came back.

use hugewise_linux::{hugepages::thp::Thp, reading::Reading, units::Pages};
use hugewise_measure::fragmentation::{Outcome, Probe, Returned};
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::record::text;

/// What `bench stall` found, schema `hugewise.stall/1`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    /// `hugewise.stall/1`.
    pub(super) schema: &'static str,
    /// Who waits for huge pages on this machine.
    pub mode: Mode,
    /// How memory was fragmented.
    pub fragmented: Fragmented,
    /// A plain load before and after; nothing where a command ran.
    pub probes: Option<Probes>,
    /// The recording of the command; nothing where none ran.
    pub program: Option<text::Report>,
    /// Was memory fragmented to the end? If not, memory ran short and it was given up.
    pub held_to_the_end: bool,
    /// What came back.
    pub returned: Returned,
}

/// The settings that decide who waits.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Mode {
    /// `/sys/kernel/mm/transparent_hugepage/enabled`, or that of the size.
    pub enabled: Reading<String>,
    /// `/sys/kernel/mm/transparent_hugepage/defrag`.
    pub defrag: Reading<String>,
}

/// How memory was fragmented.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Fragmented {
    /// What was done.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Whole blocks of the size of a huge page that were free before.
    pub blocks_before: Pages,
}

/// The same load twice.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Probes {
    /// On memory as it was.
    pub before: Probe,
    /// On fragmented memory.
    pub fragmented: Probe,
}

impl Mode {
    /// As they are.
    pub fn of(thp: Thp) -> Mode {
        let enabled = thp.pmd_enabled().map(|(mode, _)| mode.to_owned());
        Mode { enabled: enabled.map_or(thp.enabled, Reading::Known), defrag: thp.defrag }
    }
}

impl Report {
    /// Puts it together.
    pub fn new(
        mode: Mode,
        fragmented: Fragmented,
        probes: Option<Probes>,
        program: Option<text::Report>,
        held_to_the_end: bool,
        returned: Returned,
    ) -> Report {
        Report { schema: "hugewise.stall/1", mode, fragmented, probes, program, held_to_the_end, returned }
    }
}
