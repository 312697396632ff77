//! What the curves say of the TLB.

#[cfg(test)]
mod tests;

use hugewise_linux::{
    cpu::tlb,
    reading::Reading,
    units::{Bytes, PageSize},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    bench::{Curves, Measured},
    curve::{self, Point},
    knees::{self, Knee},
};

/// Today's CPUs have two levels. A later rise is that of page tables that leave the
/// caches.
const LEVELS: usize = 2;
/// Entries hold whole pages where strided lines miss by less than this share of what base pages do, and
/// pieces where they miss by more than the rest of it.
const WHOLE: f64 = 0.25;

/// What one entry of the TLB holds of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Entries {
    /// The whole page.
    Whole,
    /// As much as a base page: the host holds the guest's memory in smaller pages.
    Pieces,
    /// Something between, or both.
    Mixed,
}

/// What CPUID says of a level, beside what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Told {
    /// How many translations of this size it holds.
    pub entries: u32,
    /// The leaf that says so.
    pub source: String,
    /// Within one step (19 %) of what was measured?
    pub agrees: bool,
}

/// A level of the TLB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// From 1, in the order in which they were seen.
    pub level: usize,
    /// Pages that it holds.
    pub pages: u64,
    /// The memory that they make; nothing where it is not known what an entry holds.
    pub reach: Option<Bytes>,
    /// What a load that misses it takes longer than one that hits the first level, in nanoseconds.
    pub miss_ns: f64,
    /// The curve ends before its cost is whole, which is at least this.
    pub cut_off: bool,
    /// What CPUID says of this level.
    pub cpuid: Reading<Told>,
}

/// What is known of the TLB for one page size.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Finding {
    /// What an entry holds.
    pub entries: Reading<Entries>,
    /// The levels that are visible.
    pub levels: Vec<Level>,
    /// How many pages were visited in turn at most.
    pub measured_to: u64,
    /// What the TLB costs far out; nothing where not so much memory was to be had.
    pub far: Option<Far>,
}

/// What the TLB adds to a load far out, where neither it nor the caches hold the page tables: one line
/// on each part of the size of a base page, on pages of whichever size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Far {
    /// The memory that the lines lie in.
    pub bytes: Bytes,
    /// What a load takes longer than one of as many packed lines, in nanoseconds: misses of the TLB, and
    /// what the caches do better for lines that lie side by side, on pages of any size alike.
    pub extra_ns: f64,
    /// The same of base pages.
    pub base_extra_ns: f64,
}

/// The time of a load that hits everything, in nanoseconds.
#[must_use]
pub fn load(curves: &Curves) -> f64 {
    curves.packed.iter().map(|point| point.ns).fold(f64::INFINITY, f64::min)
}

/// What the curves of one page size say.
#[must_use]
pub fn finding(curves: &Curves, of: &Measured) -> Finding {
    let load = load(curves);
    let steps = |curve: &[Point]| knees::knees(&curve::extra(curve, &curves.packed), load);
    let entries = match &of.strided {
        None => Reading::Known(Entries::Whole),
        Some(strided) => {
            let base = curves.measured.iter().find(|measured| measured.page_size == curves.base);
            match base.map(|base| (base, steps(&base.paged))) {
                Some((base, steps)) => entries(curves, &base.paged, steps.first(), strided),
                None => Reading::unknown("base pages were not measured"),
            }
        }
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
        cpuid: told(curves, number + 1, reach, knee.pages),
    });
    let measured_to = of.paged.last().map_or(0, |point| point.pages);
    Finding { levels: levels.collect(), measured_to, entries, far: far(curves, of) }
}

/// At the most memory that was measured for these pages and for base pages, too.
fn far(curves: &Curves, of: &Measured) -> Option<Far> {
    let base = curves.measured.iter().find(|measured| measured.page_size == curves.base)?;
    let (ours, theirs) = [of, base].map(|measured| curve::extra(&measured.far, &curves.packed_far)).into();
    ours.iter().rev().find_map(|ours| {
        let base = theirs.iter().find(|base| base.pages == ours.pages)?;
        let bytes = Bytes(ours.pages.checked_mul(curves.base.bytes().0)?);
        Some(Far { bytes, extra_ns: ours.ns, base_extra_ns: base.ns })
    })
}

/// What CPUID says of a level whose entries hold `size` each.
fn told(curves: &Curves, level: usize, size: Option<PageSize>, pages: u64) -> Reading<Told> {
    let Some(size) = size else { return Reading::unknown("it is not known what an entry holds") };
    curves.cpuid.clone().and_then(|tlbs| {
        let level = u32::try_from(level).unwrap_or(u32::MAX);
        let tlb = tlb::entries(&tlbs, level, size)
            .ok_or_else(|| format!("CPUID tells nothing of level {level} for {size} pages"))?;
        let agrees = curve::within_a_step(pages, u64::from(tlb.entries));
        Ok::<Told, String>(Told { entries: tlb.entries, source: tlb.source.clone(), agrees })
    })
}

/// What an entry holds: lines on neighbouring parts of huge pages need as many entries as base pages
/// do, or next to none.
fn entries(curves: &Curves, base: &[Point], knee: Option<&Knee>, strided: &[Point]) -> Reading<Entries> {
    let Some(knee) = knee else {
        return Reading::unknown("base pages show no first level to hold it against");
    };
    // Where base pages miss the first level, and not yet the second.
    let beyond = |point: &&Point| (knee.pages * 3 / 2..knee.pages * 3).contains(&point.pages);
    let mean = |curve: &[Point]| {
        let extra = curve::extra(curve, &curves.packed);
        let beyond: Vec<f64> = extra.iter().filter(beyond).map(|point| point.ns).collect();
        crate::statistics::median(&beyond)
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
