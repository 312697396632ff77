//! What the TLB holds: as text, as a plot, and as JSON.

use hugewise_measure::tlb::{
    bench::{Curves, Design, Measured},
    finding::{self, Finding},
};
use schemars::JsonSchema;
use serde::Serialize;

/// What `bench tlb` says, schema `hugewise.tlb/1`.
#[derive(Serialize, JsonSchema)]
pub struct Report {
    pub(super) schema: &'static str,
    /// How it was measured.
    pub(super) design: Design,
    /// Nanoseconds for a load that hits the first level of the TLB and of the caches.
    pub(super) load_ns: f64,
    /// What was found, in the order of `curves.measured`.
    pub(super) findings: Vec<Finding>,
    /// What was measured.
    pub(super) curves: Curves,
}

impl Report {
    /// Of what was measured.
    pub fn new(design: Design, curves: Curves) -> Report {
        let findings = curves.measured.iter().map(|measured| finding::finding(&curves, measured)).collect();
        Report { schema: "hugewise.tlb/1", design, load_ns: finding::load(&curves), findings, curves }
    }

    /// Each measurement with what it says.
    pub(super) fn each(&self) -> impl Iterator<Item = (&Measured, &Finding)> {
        self.curves.measured.iter().zip(&self.findings)
    }
}
