//! Knees: the counts of pages at which a curve steps up for good.
//!
//! A curve of a TLB is a stair: flat while every page has its entry, up where entries run out, flat
//! again on what the next level costs. The stair is not sharp, for a TLB has sets and the pages fill
//! them unevenly. Whatever is no stair (noise, a slope, a spike) has no knee.

#[cfg(test)]
mod tests;

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::curve::Point;

/// On each side of a place, the stretch whose median is its level: half an octave.
const WINDOW: f64 = 0.5;
/// And never fewer points, so that one alone decides nothing.
const FEWEST: usize = 3;
/// A step rises by at least this share of a load that hits everything: a load takes four or five
/// cycles, and a miss costs more than one.
const LEAST_OF_A_LOAD: f64 = 0.2;
/// A step rises by this many deviations of the curve's noise, or it may be noise.
const LEAST_OF_NOISE: f64 = 6.0;
/// A step rises by at least this share of what lies below it: a slower rise is that of page tables
/// that leave the caches.
const LEAST_OF_LEVEL: f64 = 0.5;
/// A step is over where the curve rises by less than this share of its steepest rise.
const FLAT: f64 = 0.2;
/// A rise over more octaves is a slope. The windows make every step one octave wider.
const WIDEST: f64 = 2.25;
/// Of the median of absolute second differences: what makes it the deviation of normal noise.
const DEVIATION: f64 = 1.4826 / 2.449_489_742_783_178;

/// A step of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    /// The largest count that lies below half of the rise.
    pub pages: u64,
    /// Level before the step, in nanoseconds.
    pub below: f64,
    /// Level after it.
    pub above: f64,
    /// The curve ends before it is flat again: the level after is the least that it can be.
    pub cut_off: bool,
}

/// A place between two points.
#[derive(Clone, Copy)]
struct Gap {
    /// Index of the point before.
    at: usize,
    below: f64,
    above: f64,
    /// The least rise that is more than noise.
    least: f64,
}

impl Gap {
    fn rise(&self) -> f64 {
        self.above - self.below
    }
}

/// The knees of a curve that ascends in pages, in that order. `load` is the time of a load that hits
/// everything.
#[must_use]
pub fn knees(curve: &[Point], load: f64) -> Vec<Knee> {
    let noise = noise(curve);
    let gaps: Vec<Gap> = (0..curve.len()).filter_map(|at| gap(curve, at, load, noise)).collect();
    // On most of its length a stair is flat, and a slope is not.
    let usual = median(gaps.iter().map(|gap| gap.rise().abs()).collect()).unwrap_or(0.0);
    let mut steepest_first: Vec<usize> = (0..gaps.len()).collect();
    steepest_first.sort_by(|a, b| gaps[*b].rise().total_cmp(&gaps[*a].rise()));
    let mut taken = vec![false; gaps.len()];
    let mut found = Vec::new();
    for peak in steepest_first {
        let steep = gaps[peak].rise() >= gaps[peak].least && gaps[peak].rise() * FLAT >= usual;
        if taken[peak] || !steep {
            continue;
        }
        let rise = rise_around(&gaps, peak);
        // What runs into a steeper rise is its flank.
        let is_flank = taken[rise.clone()].contains(&true);
        taken[rise.clone()].fill(true);
        if !is_flank {
            found.extend(knee(curve, &gaps[rise]));
        }
    }
    found.sort_by_key(|knee| knee.pages);
    found
}

/// The gaps around the steepest that rise too.
fn rise_around(gaps: &[Gap], peak: usize) -> Range<usize> {
    let flat = gaps[peak].rise() * FLAT;
    let rises = |gap: &&Gap| gap.rise() >= flat;
    let first = peak - gaps[..peak].iter().rev().take_while(rises).count();
    let last = peak + gaps[peak + 1..].iter().take_while(rises).count();
    first..last + 1
}

/// The deviation of a point, told by how it lies between its neighbours; steps hardly matter.
fn noise(curve: &[Point]) -> f64 {
    let bends = curve.windows(3).map(|three| (three[0].ns - 2.0 * three[1].ns + three[2].ns).abs());
    median(bends.collect()).map_or(0.0, |bend| bend * DEVIATION)
}

fn gap(curve: &[Point], at: usize, load: f64, noise: f64) -> Option<Gap> {
    let octave = |index: usize| curve.get(index).map(|point| (point.pages as f64).log2());
    let (here, next) = (octave(at)?, octave(at + 1)?);
    let near = |from: f64, (number, point): &(usize, &Point)| {
        *number < FEWEST || (from - (point.pages as f64).log2()).abs() < WINDOW
    };
    let before: Vec<&Point> =
        curve[..=at].iter().rev().enumerate().take_while(|it| near(here, it)).map(|(_, p)| p).collect();
    let after: Vec<&Point> =
        curve[at + 1..].iter().enumerate().take_while(|it| near(next, it)).map(|(_, p)| p).collect();
    if before.len() < FEWEST || after.len() < FEWEST {
        return None;
    }
    let level = |points: &[&Point]| median(points.iter().map(|point| point.ns).collect());
    let spread = median(before.iter().chain(&after).map(|point| point.spread).collect())?;
    Some(Gap {
        at,
        below: level(&before)?,
        above: level(&after)?,
        least: (LEAST_OF_A_LOAD * load).max(LEAST_OF_NOISE * noise).max(LEAST_OF_NOISE * spread),
    })
}

/// The knee of a rise, if it is one.
fn knee(curve: &[Point], rise: &[Gap]) -> Option<Knee> {
    let (first, last) = (rise.first()?, rise.last()?);
    let octave = |index: usize| curve.get(index).map(|point| (point.pages as f64).log2());
    let (below, above) = (first.below, last.above);
    let width = octave(last.at + 1)? - octave(first.at)?;
    let least = first.least.max(LEAST_OF_LEVEL * below.max(0.0));
    if above - below < least || width > WIDEST {
        return None;
    }
    let split = split(&curve[first.at..=last.at + 1], f64::midpoint(below, above));
    // A rise that ends with the curve may not be over.
    let cut_off = octave(curve.len() - 1)? - octave(last.at + 1)? < WINDOW;
    Some(Knee { pages: curve[first.at + split].pages, below, above, cut_off })
}

/// The index of the last point before a curve crosses `half`: the place for which the points before
/// reach above it, and those behind below it, by the least in sum.
fn split(curve: &[Point], half: f64) -> usize {
    let wrong = |at: usize| -> f64 {
        let before = curve[..=at].iter().map(|point| (point.ns - half).max(0.0));
        let behind = curve[at + 1..].iter().map(|point| (half - point.ns).max(0.0));
        before.chain(behind).sum()
    };
    (0..curve.len()).min_by(|a, b| wrong(*a).total_cmp(&wrong(*b))).unwrap_or(0)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 0 { f64::midpoint(values[middle - 1], upper) } else { upper })
}
