//! The result of `bench tlb`.

use hugewise_linux::json;
use hugewise_measure::tlb::{
    bench::{Curves, Design, PageSizeCurves},
    finding::{self, TlbFinding},
};
use schemars::JsonSchema;
use serde::Serialize;

/// Result of `hugewise bench tlb`, schema `hugewise.tlb/2`.
#[derive(Serialize, JsonSchema)]
pub struct TlbReport {
    pub(super) schema: &'static str,
    /// Parameters of the measurement.
    pub(super) design: Design,
    /// Time of a load that hits the first level of the TLB and of the caches, in nanoseconds.
    #[serde(rename = "load_seconds", serialize_with = "json::ns_in_seconds")]
    pub(super) load_ns: f64,
    /// TLB levels and miss costs, in the order of `curves.measured`.
    pub(super) findings: Vec<TlbFinding>,
    /// The measured times.
    pub(super) curves: Curves,
}

impl TlbReport {
    pub fn new(design: Design, curves: Curves) -> TlbReport {
        let findings = curves.measured.iter().map(|measured| finding::finding(&curves, measured)).collect();
        TlbReport { schema: "hugewise.tlb/2", design, load_ns: finding::load(&curves), findings, curves }
    }

    /// Each measurement with its finding.
    pub(super) fn each(&self) -> impl Iterator<Item = (&PageSizeCurves, &TlbFinding)> {
        self.curves.measured.iter().zip(&self.findings)
    }
}
