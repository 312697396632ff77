//! What the TLB holds, for people and as JSON.

use std::fmt;

use hugewise_measure::tlb::{
    bench::{Curves, Design},
    finding::{self, Finding},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::page::Page;
use crate::terminal::Terminal;

/// What `bench tlb` says, schema `hugewise.tlb/1`.
#[derive(Serialize, JsonSchema)]
pub struct Report {
    schema: &'static str,
    design: Design,
    curves: Curves,
    findings: Vec<Finding>,
}

impl Report {
    /// Of what was measured.
    pub fn new(design: Design, curves: Curves) -> Report {
        let findings = curves.measured.iter().map(|measured| finding::finding(&curves, measured)).collect();
        Report { schema: "hugewise.tlb/1", design, curves, findings }
    }
}

/// The report as text.
pub fn text(report: &Report, terminal: &Terminal) -> Result<String, fmt::Error> {
    let mut page = Page::new(terminal);
    for (measured, finding) in report.curves.measured.iter().zip(&report.findings) {
        page.text(&format!("{} {} {:?}", measured.backing, measured.page_size, finding))?;
    }
    page.text(&format!("{:?} {}", report.curves.left_out, report.curves.seconds))?;
    Ok(page.into_text())
}
