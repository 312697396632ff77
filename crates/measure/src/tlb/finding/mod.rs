//! The levels of the TLB, derived from the measured curves.

#[cfg(test)]
mod tests;

use hugewise_linux::{
    cpu::tlb,
    json,
    reading::Reading,
    units::{Bytes, PageSize},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    bench::{Curves, PageSizeCurves},
    curve::{self, Point},
    knees::{self, Knee},
};
use crate::statistics;

/// Levels of the TLB in current CPUs. Later rises stem from page tables that outgrow the caches.
const LEVELS: usize = 2;
/// Entries cover whole pages if strided lines cost less than this share of the cost on base pages, and pieces
/// if they cost more than 1 minus this share.
const WHOLE: f64 = 0.25;

/// The part of a page that one TLB entry covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Entries {
    /// The whole page.
    Whole,
    /// A base page: the host backs the guest's memory with smaller pages.
    Pieces,
    /// Between the two, or a mix of both.
    Mixed,
}

/// A TLB level as CPUID describes it, compared with the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuidLevel {
    /// Entries of the level for this page size.
    pub entries: u32,
    /// The CPUID leaf that reports it.
    pub source: String,
    /// Whether `entries` lies within one step (19 %) of the measured number of pages.
    pub agrees: bool,
}

/// A level of the TLB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// Number of the level, from 1, in the order in which the curve shows them.
    pub level: usize,
    /// Number of pages that the level holds.
    pub pages: u64,
    /// Memory that the level covers, in bytes; null if the coverage of an entry is unknown.
    #[serde(rename = "reach_bytes")]
    pub reach: Option<Bytes>,
    /// Time that a miss of this level adds to a load that hits the first one, in nanoseconds (JSON: seconds).
    #[serde(rename = "miss_seconds", serialize_with = "json::ns_in_seconds")]
    pub miss_ns: f64,
    /// The curve ends within the step: `miss_ns` is a lower bound.
    pub cut_off: bool,
    /// The level as CPUID describes it.
    pub cpuid: Reading<CpuidLevel>,
}

/// The TLB for one page size.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TlbFinding {
    /// The part of a page that one entry covers.
    pub entries: Reading<Entries>,
    /// The visible levels, in ascending order.
    pub levels: Vec<Level>,
    /// Largest number of pages visited in one lap.
    pub measured_to: u64,
    /// Cost of the TLB over more memory; null if too little memory was available.
    pub far: Option<LargeRangeCost>,
}

/// The time that the TLB adds to a load over memory so large that neither the TLB nor the caches hold the
/// page tables. One line is visited in each part of the size of a base page, whatever the page size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LargeRangeCost {
    /// Memory that the lines span, in bytes.
    pub bytes: Bytes,
    /// Additional time of a load compared with as many packed lines, in nanoseconds (JSON: seconds): TLB
    /// misses, plus the caches' gain from adjacent lines, which is the same for all page sizes.
    #[serde(rename = "extra_seconds", serialize_with = "json::ns_in_seconds")]
    pub extra_ns: f64,
    /// The same difference on base pages, in nanoseconds (JSON: seconds).
    #[serde(rename = "base_extra_seconds", serialize_with = "json::ns_in_seconds")]
    pub base_extra_ns: f64,
}

/// Time of a load that hits everything, in nanoseconds.
pub fn load(curves: &Curves) -> f64 {
    curves.packed.iter().map(|point| point.ns).fold(f64::INFINITY, f64::min)
}

/// The levels of the TLB for one page size, derived from its curves.
pub fn finding(curves: &Curves, of: &PageSizeCurves) -> TlbFinding {
    let load = load(curves);
    let steps = |curve: &[Point]| knees::knees(&curve::extra(curve, &curves.packed), load);
    let entries = match &of.strided {
        None => Reading::Known(Entries::Whole),
        Some(strided) => match curves.measured.iter().find(|measured| measured.page_size == curves.base) {
            Some(base) => entries(curves, &base.paged, steps(&base.paged).first(), strided),
            None => Reading::unknown("base pages were not measured"),
        },
    };
    let reach = match entries {
        Reading::Known(Entries::Whole) => Some(of.page_size),
        Reading::Known(Entries::Pieces) => Some(curves.base),
        _ => None,
    };
    let knees = steps(&of.paged);
    let first = knees.first().map_or(0.0, |knee| knee.below);
    let levels = knees.iter().take(LEVELS).enumerate().map(|(number, knee)| Level {
        level: number + 1,
        pages: knee.pages,
        reach: reach.map(|size: PageSize| Bytes(knee.pages.saturating_mul(size.bytes().0))),
        miss_ns: knee.above - first,
        cut_off: knee.cut_off,
        cpuid: cpuid_level(curves, number + 1, reach, knee.pages),
    });
    let measured_to = of.paged.last().map_or(0, |point| point.pages);
    TlbFinding { levels: levels.collect(), measured_to, entries, far: far(curves, of) }
}

/// The cost over the largest memory that was measured for both this page size and base pages.
fn far(curves: &Curves, of: &PageSizeCurves) -> Option<LargeRangeCost> {
    let base = curves.measured.iter().find(|measured| measured.page_size == curves.base)?;
    let (ours, theirs) = [of, base].map(|measured| curve::extra(&measured.far, &curves.packed_far)).into();
    ours.iter().rev().find_map(|ours| {
        let base = theirs.iter().find(|base| base.pages == ours.pages)?;
        let bytes = Bytes(ours.pages.checked_mul(curves.base.bytes().0)?);
        Some(LargeRangeCost { bytes, extra_ns: ours.ns, base_extra_ns: base.ns })
    })
}

/// CPUID's description of a level whose entries cover `size` each.
fn cpuid_level(curves: &Curves, level: usize, size: Option<PageSize>, pages: u64) -> Reading<CpuidLevel> {
    let Some(size) = size else { return Reading::unknown("the coverage of an entry is unknown") };
    curves.cpuid.clone().and_then(|tlbs| {
        let level = u32::try_from(level).unwrap_or(u32::MAX);
        let tlb = tlb::entries(&tlbs, level, size)
            .ok_or_else(|| format!("CPUID reports no level {level} for {size} pages"))?;
        let agrees = curve::within_a_step(pages, u64::from(tlb.entries));
        Ok::<_, String>(CpuidLevel { entries: tlb.entries, source: tlb.source.clone(), agrees })
    })
}

/// The part of a page that an entry covers: lines on neighbouring parts of huge pages miss as often as on
/// base pages, or hardly ever.
fn entries(curves: &Curves, base: &[Point], knee: Option<&Knee>, strided: &[Point]) -> Reading<Entries> {
    let Some(knee) = knee else {
        return Reading::unknown("base pages show no first level to compare with");
    };
    // Counts at which base pages miss the first level but hit the second.
    let beyond = |point: &&Point| (knee.pages * 3 / 2..knee.pages * 3).contains(&point.pages);
    let mean = |curve: &[Point]| {
        let extra = curve::extra(curve, &curves.packed);
        let beyond: Vec<f64> = extra.iter().filter(beyond).map(|point| point.ns).collect();
        statistics::median(&beyond)
    };
    match (mean(base), mean(strided)) {
        (Some(base), Some(strided)) if base > 0.0 => Reading::Known(match strided / base {
            share if share < WHOLE => Entries::Whole,
            share if share > 1.0 - WHOLE => Entries::Pieces,
            _ => Entries::Mixed,
        }),
        _ => Reading::unknown("there are too few points beyond the first level"),
    }
}
