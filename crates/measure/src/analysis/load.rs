//! How noisy the host was, and whether the ratio depends on its load, from the turns.

use crate::{
    comparison::{RatioByLoad, Round, Turns},
    statistics::{PairedRatio, mean},
};

/// Confidence with which the ratio must depend on the load.
const CONFIDENCE: f64 = 0.99;
/// Fewest starts of both arms from which a dependency is inferred.
const MIN_STARTS: usize = 5;

/// One cycle: the load around it, and the logarithm of its ratio.
struct Point {
    load: f64,
    ratio: f64,
}

/// `starts`: the rounds of the reference and of the arm in each block. `None` if the ratio does not certainly
/// depend on the load.
pub fn ratio_by_load(starts: &[(&Round, &Round)]) -> Option<RatioByLoad> {
    let starts: Vec<Vec<Point>> = starts
        .iter()
        .filter_map(|(reference, arm)| Some(points(reference.turns.as_ref()?, arm.turns.as_ref()?)))
        .collect();
    let slopes: Vec<f64> = starts.iter().filter_map(|points| slope(points)).collect();
    if slopes.len() < MIN_STARTS {
        return None;
    }
    let slopes = PairedRatio::of_logarithms(&slopes)?;
    if slopes.mean.abs() <= slopes.half_width(CONFIDENCE)? {
        return None;
    }
    let mut points: Vec<Point> = starts.into_iter().flatten().collect();
    points.sort_by(|a, b| a.load.total_cmp(&b.load));
    let quarter = points.len() / 4;
    let of = |points: &[Point]| mean(&points.iter().map(|point| point.ratio).collect::<Vec<_>>());
    Some(RatioByLoad {
        quietest: of(&points[..quarter])?.exp(),
        busiest: of(&points[points.len() - quarter..])?.exp(),
    })
}

/// The load is that of the neighbouring cycles, because a slow turn of the reference alone changes both its
/// own time and the ratio.
fn points(reference: &Turns, arm: &Turns) -> Vec<Point> {
    let cycles: Vec<(f64, f64)> =
        reference.values.iter().zip(&arm.values).map(|(reference, arm)| (reference.ln(), arm.ln())).collect();
    let point = |cycles: &[(f64, f64)]| {
        let [before, this, after] = cycles else { return None };
        let load = (before.0 + before.1 + after.0 + after.1) / 4.0;
        Some(Point { load, ratio: this.1 - this.0 })
    };
    cycles.windows(3).filter_map(point).collect()
}

/// Slope of the ratio over the load, by least squares; `None` if the load did not change.
fn slope(points: &[Point]) -> Option<f64> {
    let load = mean(&points.iter().map(|point| point.load).collect::<Vec<_>>())?;
    let ratio = mean(&points.iter().map(|point| point.ratio).collect::<Vec<_>>())?;
    let spread: f64 = points.iter().map(|point| (point.load - load).powi(2)).sum();
    let both: f64 = points.iter().map(|point| (point.load - load) * (point.ratio - ratio)).sum();
    Some(both / spread).filter(|slope| slope.is_finite())
}

/// The times between which nine in ten turns of these rounds lie; `None` without turns.
pub fn spread(rounds: &[&Round]) -> Option<(f64, f64)> {
    let mut values: Vec<f64> = rounds
        .iter()
        .filter_map(|round| round.turns.as_ref())
        .flat_map(|turns| turns.values.clone())
        .collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let at = |share: f64| values[(share * last as f64).round() as usize];
    Some((at(0.05), at(0.95)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fastrand::Rng;

    use super::*;

    fn round(values: Vec<f64>) -> Round {
        Round {
            case: 0,
            arm: 0,
            block: Some(0),
            fell_back: None,
            figures: BTreeMap::new(),
            turns: Some(Turns { figure: "time".to_owned(), values, cpu: None }),
            coverage: None,
            off_heap_coverage: None,
            server_coverage: Vec::new(),
            huge_pages_left: None,
        }
    }

    /// Eight starts on a host whose load drifts; the arm takes 0.8 of the time, or, of `dependent`, 0.9 to
    /// 0.7.
    fn by_load(dependent: bool) -> Option<RatioByLoad> {
        let mut random = Rng::with_seed(3);
        let mut noise = || 0.02 * (random.f64() - 0.5);
        let rounds: Vec<(Round, Round)> = (0..8)
            .map(|_| {
                let loads = (0..40).map(|cycle| f64::from(cycle) / 40.0);
                let (base, arm) = loads
                    .map(|load| {
                        let gain = if dependent { 0.9 - 0.2 * load } else { 0.8 };
                        // The reference has noise of its own as well.
                        let base = 20.0 * (1.0 + load) * (1.0 + 5.0 * noise());
                        (base, gain * 20.0 * (1.0 + load) * (1.0 + noise()))
                    })
                    .unzip();
                (round(base), round(arm))
            })
            .collect();
        ratio_by_load(&rounds.iter().map(|(base, arm)| (base, arm)).collect::<Vec<_>>())
    }

    #[test]
    fn a_ratio_that_depends_on_the_load_is_seen() {
        let seen = by_load(true);
        assert!(seen.is_some_and(|r| r.quietest > 0.85 && r.busiest < 0.75), "{seen:?}");
        assert_eq!(by_load(false), None);
    }

    #[test]
    fn nine_in_ten_turns_lie_in_the_spread() {
        let rounds = [round((1..=101).map(f64::from).collect())];
        assert_eq!(spread(&rounds.iter().collect::<Vec<_>>()), Some((6.0, 96.0)));
        assert_eq!(spread(&[]), None);
    }
}
