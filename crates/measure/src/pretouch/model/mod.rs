//! The cost model of a pretouch, fitted to measured times.
//!
//! A *line* is a backing with a number of threads; on each line the time is
//!
//! > fixed + bytes · cost of a byte on this line
//!
//! with one fixed cost for all lines. The model is fitted to the logarithms of the times, because the error
//! of a time is proportional to it, from a millisecond to a minute. The costs of the lines yield those of a
//! page and of a byte ([`Model::costs`]) and the gain of more threads ([`Model::gains`]). docs/method.md
//! describes the method.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hugewise_linux::{hugepages::backing::Backing, units::Bytes};
use schemars::JsonSchema;
use serde::Serialize;

use crate::statistics::MIN_DEVIATION;

pub(super) const GIB: f64 = (1u64 << 30) as f64;
/// Limit for the iterations of the fit, which usually needs fewer than 10.
const MAX_ITERATIONS: usize = 100;
/// Prior standard deviation of the exponent of the growth around 1: with 0.05, 1000 times the size takes up to
/// 1.4 times the proportional time.
const EXPONENT_PRIOR_DEVIATION: f64 = 0.05;

/// One measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub backing: Backing,
    pub threads: usize,
    pub bytes: Bytes,
    pub seconds: f64,
}

/// The fitted model.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Model {
    /// Cost of a pretouch before its first byte, in seconds.
    pub fixed_seconds: f64,
    /// The lines, ordered by backing and threads.
    pub lines: Vec<Line>,
    /// Measured and modelled times, one row per size and line.
    pub residuals: Vec<Residual>,
    /// Standard deviation of the logarithm of the time between processes that do the same.
    #[serde(rename = "deviation_between_processes_ratio")]
    pub deviation_between_processes: f64,
    /// Standard deviation of the logarithm of a size's mean time from the model.
    #[serde(rename = "deviation_from_model_ratio")]
    pub deviation_from_model: f64,
    /// Degrees of freedom: number of sizes on all lines, minus the fitted parameters.
    #[serde(rename = "degrees_of_freedom")]
    pub freedom: usize,
    #[serde(skip)]
    pub(super) spread: Spread,
}

/// The fit for a backing and a number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// The backing.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// Number of threads.
    pub threads: usize,
    /// Cost of a GiB, in seconds.
    pub seconds_per_gib: f64,
    /// Longest measured time on this backing, divided by the modelled one; at least 1.
    #[serde(rename = "slowest_ratio")]
    pub slowest: f64,
    /// Geometric mean of the fitted sizes, in GiB.
    #[serde(skip)]
    pub(super) middle: f64,
}

/// Measured and modelled time of one size on one line.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Residual {
    /// The backing.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// Number of threads.
    pub threads: usize,
    /// Size of the memory, in bytes.
    pub bytes: Bytes,
    /// Number of processes measured.
    pub processes: usize,
    /// Geometric mean of the measured times, in seconds.
    pub measured_seconds: f64,
    /// Time according to the model, in seconds.
    pub modelled_seconds: f64,
}

/// The variances that determine the width of an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spread {
    /// Variance of one process at a size that was not fitted, in squared logarithms.
    pub one_process: f64,
    /// Variance of a size's mean around the model, in squared logarithms.
    pub of_means: f64,
    /// Variance of the exponent of the growth, which the model takes as 1; `None` with a single size per
    /// line.
    pub of_exponent: Option<f64>,
    /// 1 / S of the normal equations; 0 if no fixed cost was fitted.
    inverse_of_fixed: f64,
    /// The sums b = ΣJf·Jr and d = ΣJr² of each line.
    sums: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    #[error("no backing was measured at two sizes or more: give --bytes two sizes or more, preferably three")]
    TooFewSizes,
    #[error("a measured size or time is zero")]
    NotPositive,
}

/// The times of one size on one line.
#[derive(Clone, Copy)]
struct Cell {
    line: usize,
    gib: f64,
    mean_ln: f64,
    count: usize,
    squares: f64,
    /// Logarithm of the longest time.
    most_ln: f64,
}

/// Fits the model to all times.
pub fn fit(measured: &[Measured]) -> Result<Model, FitError> {
    let (names, cells) = cells(measured)?;
    if cells.len() <= names.len() {
        return Err(FitError::TooFewSizes);
    }
    // The fixed cost uses a degree of freedom; at least one must remain.
    let free = (cells.len() > names.len() + 1).then(|| solve(&cells, names.len(), true));
    let fitted = free.filter(|fit| fit.fixed > 0.0).unwrap_or_else(|| solve(&cells, names.len(), false));
    let unknowns = names.len() + usize::from(fitted.fixed > 0.0);
    Ok(describe(&names, &cells, &fitted, cells.len() - unknowns))
}

type Names = Vec<(Backing, usize)>;

fn cells(measured: &[Measured]) -> Result<(Names, Vec<Cell>), FitError> {
    let mut groups: BTreeMap<(Backing, usize, Bytes), Vec<f64>> = BTreeMap::new();
    for one in measured {
        if one.bytes == Bytes::ZERO || !(one.seconds.is_finite() && one.seconds > 0.0) {
            return Err(FitError::NotPositive);
        }
        groups.entry((one.backing, one.threads, one.bytes)).or_default().push(one.seconds.ln());
    }
    let mut names: Names = groups.keys().map(|(backing, threads, _)| (*backing, *threads)).collect();
    names.dedup();
    let cells = groups.iter().map(|((backing, threads, bytes), logs)| {
        let mean_ln = logs.iter().sum::<f64>() / logs.len() as f64;
        Cell {
            line: names.iter().position(|name| name == &(*backing, *threads)).unwrap_or_default(),
            gib: bytes.0 as f64 / GIB,
            mean_ln,
            count: logs.len(),
            squares: logs.iter().map(|log| (log - mean_ln).powi(2)).sum(),
            most_ln: logs.iter().copied().fold(mean_ln, f64::max),
        }
    });
    let cells = cells.collect();
    Ok((names, cells))
}

/// The fitted parameters, and the sums of the normal equations at them.
struct Fitted {
    fixed: f64,
    rates: Vec<f64>,
    sums: Vec<(f64, f64)>,
    /// Schur complement of the fixed cost: its own sum after elimination of the rates.
    schur: f64,
    squares: f64,
}

/// Least squares on the logarithms: Gauss-Newton steps, halved until the squares decrease. The lines share
/// only the fixed cost, so the matrix of the normal equations is an arrow matrix and is solved directly.
fn solve(cells: &[Cell], lines: usize, with_fixed: bool) -> Fitted {
    let rate = |line| mean_on_line(cells, line, |cell| cell.mean_ln - cell.gib.ln()).exp();
    let mut now = sums(cells, 0.0, (0..lines).map(rate).collect());
    for _ in 0..MAX_ITERATIONS {
        let step = if with_fixed && now.fitted.schur > f64::EPSILON * now.own {
            now.gradient / now.fitted.schur
        } else {
            0.0
        };
        let steps: Vec<f64> =
            now.fitted.sums.iter().zip(&now.of_rates).map(|((b, d), v)| (v - b * step) / d).collect();
        let better = (0..40).map(|half| 0.5f64.powi(half)).find_map(|share| {
            let rates: Vec<f64> =
                now.fitted.rates.iter().zip(&steps).map(|(rate, step)| rate + share * step).collect();
            let next = now.fitted.fixed + share * step;
            let possible = rates.iter().all(|rate| *rate > 0.0) && next >= 0.0;
            let candidate = possible.then(|| sums(cells, next, rates))?;
            (candidate.fitted.squares < now.fitted.squares * (1.0 - 1e-12)).then_some(candidate)
        });
        let Some(better) = better else { break };
        now = better;
    }
    now.fitted
}

fn mean_on_line(cells: &[Cell], line: usize, value: impl Fn(&Cell) -> f64) -> f64 {
    let values: Vec<f64> = cells.iter().filter(|cell| cell.line == line).map(value).collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

struct Sums {
    fitted: Fitted,
    /// ΣJf².
    own: f64,
    /// ΣJf·residual after elimination of the rates.
    gradient: f64,
    /// ΣJr·residual of each line.
    of_rates: Vec<f64>,
}

fn sums(cells: &[Cell], fixed: f64, rates: Vec<f64>) -> Sums {
    let mut sums = vec![(0.0, 0.0); rates.len()];
    let mut of_rates = vec![0.0; rates.len()];
    let (mut own, mut gradient, mut squares) = (0.0, 0.0, 0.0);
    for cell in cells {
        let modelled = fixed + cell.gib * rates[cell.line];
        let residual = cell.mean_ln - modelled.ln();
        let (to_fixed, to_rate) = (1.0 / modelled, cell.gib / modelled);
        own += to_fixed * to_fixed;
        gradient += to_fixed * residual;
        sums[cell.line].0 += to_fixed * to_rate;
        sums[cell.line].1 += to_rate * to_rate;
        of_rates[cell.line] += to_rate * residual;
        squares += residual * residual;
    }
    let mut schur = own;
    for ((b, d), v) in sums.iter().zip(&of_rates) {
        schur -= b * b / d;
        gradient -= b * v / d;
    }
    Sums { fitted: Fitted { fixed, rates, sums, schur, squares }, own, gradient, of_rates }
}

fn describe(names: &Names, cells: &[Cell], fitted: &Fitted, freedom: usize) -> Model {
    let middles: Vec<f64> =
        (0..names.len()).map(|line| mean_on_line(cells, line, |cell| cell.gib.ln())).collect();
    let modelled = |cell: &Cell| fitted.fixed + cell.gib * fitted.rates[cell.line];
    let slowest = |backing: Backing| {
        let of_backing = cells.iter().filter(|cell| names[cell.line].0 == backing);
        of_backing.map(|cell| cell.most_ln - modelled(cell).ln()).fold(0.0, f64::max).exp()
    };
    let lines = names.iter().enumerate().map(|(line, &(backing, threads))| Line {
        backing,
        threads,
        seconds_per_gib: fitted.rates[line],
        slowest: slowest(backing),
        middle: middles[line].exp(),
    });
    let residuals = cells.iter().map(|cell| Residual {
        backing: names[cell.line].0,
        threads: names[cell.line].1,
        bytes: Bytes((cell.gib * GIB).round() as u64),
        processes: cell.count,
        measured_seconds: cell.mean_ln.exp(),
        modelled_seconds: modelled(cell),
    });
    // Lower bound of the noise, because a few processes can agree by chance.
    let floor = MIN_DEVIATION.powi(2);
    let others: usize = cells.iter().map(|cell| cell.count - 1).sum();
    let within = (cells.iter().map(|cell| cell.squares).sum::<f64>() / others.max(1) as f64).max(floor);
    let of_means = (fitted.squares / freedom.max(1) as f64).max(floor);
    let processes = cells.iter().map(|cell| cell.count).sum::<usize>() as f64 / cells.len() as f64;
    // Deviation of the sizes from the model beyond the noise of this number of processes.
    let of_sizes = (of_means - within / processes).max(0.0);
    let spread = Spread {
        one_process: within + of_sizes,
        of_means,
        of_exponent: exponent(cells, &middles, &modelled, of_means),
        inverse_of_fixed: if fitted.fixed > 0.0 { 1.0 / fitted.schur } else { 0.0 },
        sums: fitted.sums.clone(),
    };
    Model {
        fixed_seconds: fitted.fixed,
        lines: lines.collect(),
        residuals: residuals.collect(),
        deviation_between_processes: within.sqrt(),
        deviation_from_model: of_means.sqrt(),
        freedom,
        spread,
    }
}

/// Variance of the exponent of the growth with the size, which the model takes as 1: the squares of the
/// residuals' slope and of its standard error. A slope within the measured sizes thus widens intervals
/// further away. Slopes within the noise carry no information on the exponent; its prior variance is then
/// [`EXPONENT_PRIOR_DEVIATION`] squared.
fn exponent(cells: &[Cell], middles: &[f64], modelled: &dyn Fn(&Cell) -> f64, of_means: f64) -> Option<f64> {
    let (mut width, mut product) = (0.0, 0.0);
    for cell in cells {
        let from_middle = cell.gib.ln() - middles[cell.line];
        width += from_middle * from_middle;
        product += from_middle * (cell.mean_ln - modelled(cell).ln());
    }
    let of_slope = of_means / width;
    let likely = EXPONENT_PRIOR_DEVIATION.powi(2);
    let weight = likely / (likely + of_slope);
    let slope = (product / width).abs();
    // The part of the slope beyond two standard errors counts in full.
    let certain = slope - 2.0 * of_slope.sqrt();
    (width > 0.0).then(|| weight * of_slope + (weight * slope).max(certain).powi(2))
}

impl Model {
    /// Logarithm of the modelled time of `gib` GiB on a line, and the variance of the fit there.
    pub(super) fn at(&self, line: usize, gib: f64) -> (f64, f64) {
        let modelled = self.fixed_seconds + gib * self.lines[line].seconds_per_gib;
        let (to_fixed, to_rate) = (1.0 / modelled, gib / modelled);
        let (b, d) = self.spread.sums[line];
        let inverse = self.spread.inverse_of_fixed;
        let of_rate = 1.0 / d + b * b / (d * d) * inverse;
        let shared = -b / d * inverse;
        let leverage =
            to_fixed * to_fixed * inverse + to_rate * to_rate * of_rate + 2.0 * to_fixed * to_rate * shared;
        (modelled.ln(), self.spread.of_means * leverage.max(0.0))
    }

    /// The lines of a backing with their indices, by ascending threads.
    pub fn lines_of(&self, backing: Backing) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().filter(move |(_, line)| line.backing == backing)
    }
}
