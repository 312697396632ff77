//! Knees: the page counts at which a curve steps up to a lasting higher level.
//!
//! The curve of a TLB is a staircase: flat while each page has an entry, rising where the entries run out,
//! flat again at the cost of the next level. The steps are not sharp, because the pages fill the sets of the
//! TLB unevenly. Noise, slopes and single spikes have no knee.

#[cfg(test)]
mod tests;

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::curve::Point;
use crate::statistics;

/// Octaves on each side of a gap whose median is the level on that side.
const WINDOW_OCTAVES: f64 = 0.5;
/// Least number of points in such a window, so that no level rests on a single point.
const MIN_WINDOW_POINTS: usize = 3;
/// Least rise of a step, as a share of the time of a load that hits everything: a load takes four or five
/// cycles, and a miss costs more than one.
const MIN_RISE_PER_LOAD: f64 = 0.2;
/// Least rise of a step, in standard deviations of the curve's noise.
const MIN_RISE_PER_NOISE: f64 = 6.0;
/// Least rise of a step, as a share of the level below it: page tables that outgrow the caches cause a slower
/// rise.
const MIN_RISE_PER_LEVEL: f64 = 0.5;
/// A step ends where the rise falls below this share of its steepest rise.
const FLAT: f64 = 0.2;
/// Widest step, in octaves; a wider rise is a slope. The windows widen every step by one octave.
const MAX_STEP_OCTAVES: f64 = 2.25;
/// Converts the median of absolute second differences into the standard deviation of normal noise.
const DEVIATION: f64 = 1.4826 / 2.449_489_742_783_178;

/// A step of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    /// Largest page count at which less than half of the rise is reached.
    pub pages: u64,
    /// Time of a load before the step, in nanoseconds.
    pub below: f64,
    /// Time of a load after the step, in nanoseconds.
    pub above: f64,
    /// The curve ends before it is flat again: `above` is a lower bound.
    pub cut_off: bool,
}

/// The gap between two neighbouring points of a curve.
#[derive(Clone, Copy)]
struct Gap {
    /// Index of the point before the gap.
    at: usize,
    below: f64,
    above: f64,
    /// Smallest rise that exceeds the noise, in nanoseconds.
    least: f64,
}

impl Gap {
    fn rise(&self) -> f64 {
        self.above - self.below
    }
}

/// The knees of a curve in ascending order; the points must ascend in pages. `load` is the time of a load
/// that hits everything, in nanoseconds.
pub fn knees(curve: &[Point], load: f64) -> Vec<Knee> {
    let noise = noise(curve);
    let gaps: Vec<Gap> = (0..curve.len()).filter_map(|at| gap(curve, at, load, noise)).collect();
    // A staircase is flat over most of its length, a slope is not.
    let usual = median(gaps.iter().map(|gap| gap.rise().abs())).unwrap_or(0.0);
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
        // A rise that joins a steeper one is its flank.
        let is_flank = taken[rise.clone()].contains(&true);
        taken[rise.clone()].fill(true);
        if !is_flank {
            found.extend(knee(curve, &gaps[rise]));
        }
    }
    found.sort_by_key(|knee| knee.pages);
    found
}

/// The gaps around the steepest one that belong to the same rise.
fn rise_around(gaps: &[Gap], peak: usize) -> Range<usize> {
    let flat = gaps[peak].rise() * FLAT;
    let rises = |gap: &&Gap| gap.rise() >= flat;
    let first = peak - gaps[..peak].iter().rev().take_while(rises).count();
    let last = peak + gaps[peak + 1..].iter().take_while(rises).count();
    first..last + 1
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    statistics::median(&values.collect::<Vec<_>>())
}

/// Standard deviation of a point's noise, from second differences; steps hardly affect their median.
fn noise(curve: &[Point]) -> f64 {
    let bends = curve.windows(3).map(|three| (three[0].ns - 2.0 * three[1].ns + three[2].ns).abs());
    median(bends).map_or(0.0, |bend| bend * DEVIATION)
}

fn gap(curve: &[Point], at: usize, load: f64, noise: f64) -> Option<Gap> {
    let octave = |index: usize| curve.get(index).map(|point| (point.pages as f64).log2());
    let (here, next) = (octave(at)?, octave(at + 1)?);
    let near = |from: f64, (number, point): &(usize, &Point)| {
        *number < MIN_WINDOW_POINTS || (from - (point.pages as f64).log2()).abs() < WINDOW_OCTAVES
    };
    let before: Vec<&Point> =
        curve[..=at].iter().rev().enumerate().take_while(|it| near(here, it)).map(|(_, p)| p).collect();
    let after: Vec<&Point> =
        curve[at + 1..].iter().enumerate().take_while(|it| near(next, it)).map(|(_, p)| p).collect();
    if before.len().min(after.len()) < MIN_WINDOW_POINTS {
        return None;
    }
    let level = |points: &[&Point]| median(points.iter().map(|point| point.ns));
    let spread = median(before.iter().chain(&after).map(|point| point.spread))?;
    Some(Gap {
        at,
        below: level(&before)?,
        above: level(&after)?,
        least: (MIN_RISE_PER_LOAD * load).max(MIN_RISE_PER_NOISE * noise).max(MIN_RISE_PER_NOISE * spread),
    })
}

/// The knee of a rise; `None` if the rise is too small or too wide.
fn knee(curve: &[Point], rise: &[Gap]) -> Option<Knee> {
    let (first, last) = (rise.first()?, rise.last()?);
    let octave = |index: usize| curve.get(index).map(|point| (point.pages as f64).log2());
    let (below, above) = (first.below, last.above);
    let width = octave(last.at + 1)? - octave(first.at)?;
    let least = first.least.max(MIN_RISE_PER_LEVEL * below.max(0.0));
    if above - below < least || width > MAX_STEP_OCTAVES {
        return None;
    }
    let split = split(&curve[first.at..=last.at + 1], f64::midpoint(below, above));
    // The rise may continue beyond the end of the curve.
    let cut_off = octave(curve.len() - 1)? - octave(last.at + 1)? < WINDOW_OCTAVES;
    Some(Knee { pages: curve[first.at + split].pages, below, above, cut_off })
}

/// Index of the last point before the curve crosses `half`: the split with the smallest sum of excesses above
/// `half` before it and shortfalls below `half` after it.
fn split(curve: &[Point], half: f64) -> usize {
    let wrong = |at: usize| -> f64 {
        let before = curve[..=at].iter().map(|point| (point.ns - half).max(0.0));
        let behind = curve[at + 1..].iter().map(|point| (half - point.ns).max(0.0));
        before.chain(behind).sum()
    };
    (0..curve.len()).min_by(|a, b| wrong(*a).total_cmp(&wrong(*b))).unwrap_or(0)
}
