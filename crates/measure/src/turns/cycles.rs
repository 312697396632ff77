//! How many cycles a generation has; a cycle gives every arm one turn, in random order.
//!
//! Starts differ, and so do the cycles of one start. The number of cycles with which the interval of the whole
//! comparison narrows fastest follows from both variances and from the costs of a start and of a cycle (Kalibera and
//! Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013, section 7).

use std::ops::RangeInclusive;

use crate::statistics::{deviation, mean, trimmed_mean, variance_of_trimmed_mean};

/// Cycles of a generation before the variances are known: turns take about as long as the starts.
const FIRST: RangeInclusive<usize> = 40..=120;
/// Fewest generations from which the variances are estimated.
const MIN_GENERATIONS: usize = 3;
/// Smallest number of cycles.
const FEWEST: usize = 10;

/// Logarithms of the ratios of one arm: for each generation, one for each cycle.
pub type Ratios = Vec<Vec<f64>>;

/// Number of cycles of the next generation. `start`: seconds that the starts of all arms take together; `cycle`: seconds of one
/// cycle.
pub fn next(arms: &[Ratios], start: f64, cycle: f64) -> usize {
    let by_time = ((start / cycle) as usize).clamp(*FIRST.start(), *FIRST.end());
    let variances: Option<Vec<Variances>> = arms.iter().map(Variances::of).collect();
    let Some(variances) = variances.filter(|all| !all.is_empty()) else { return by_time };
    let of_cycles: f64 = variances.iter().map(|arm| arm.of_cycles).sum();
    let of_starts: f64 = variances.iter().map(|arm| arm.of_starts).sum();
    // Without a difference between starts, one start with all cycles would be best.
    let best = (of_cycles / of_starts * start / cycle).sqrt();
    if best.is_finite() { (best as usize).clamp(FEWEST, *FIRST.end()) } else { *FIRST.end() }
}

/// Variances of the logarithms of one arm's ratios.
struct Variances {
    /// Of the cycles of one start.
    of_cycles: f64,
    /// Of the starts, without the part that the variance of the mean of their cycles causes.
    of_starts: f64,
}

impl Variances {
    /// `None` with too few generations.
    fn of(generations: &Ratios) -> Option<Variances> {
        if generations.len() < MIN_GENERATIONS {
            return None;
        }
        let of = |each: fn(&[f64]) -> Option<f64>| {
            generations.iter().map(|cycles| each(cycles)).collect::<Option<Vec<f64>>>()
        };
        let of_means = of(variance_of_trimmed_mean)?;
        let of_cycles: Vec<f64> = of_means
            .iter()
            .zip(generations)
            .map(|(variance, cycles)| variance * cycles.len() as f64)
            .collect();
        let between = deviation(&of(trimmed_mean)?)?.powi(2);
        Some(Variances { of_cycles: mean(&of_cycles)?, of_starts: (between - mean(&of_means)?).max(0.0) })
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// Cycles after twelve generations in which the starts and the cycles have these deviations.
    fn cycles(starts: f64, of_cycles: f64) -> usize {
        let mut random = Rng::with_seed(5);
        // Uniform between ±√3 has a deviation of 1.
        let mut noise = || 3_f64.sqrt() * (2.0 * random.f64() - 1.0);
        let generations: Ratios = (0..12)
            .map(|_| {
                let start = starts * noise();
                (0..40).map(|_| start + of_cycles * noise()).collect()
            })
            .collect();
        next(&[generations.clone(), generations], 1.2, 0.06)
    }

    #[test]
    fn the_more_the_starts_differ_the_fewer_cycles_each_has() {
        assert_eq!(next(&[], 1.2, 0.06), 40);
        assert_eq!(next(&[], 4.8, 0.06), 80);
        assert_eq!(next(&[vec![vec![0.0; 40]; 2]], 1.2, 0.06), 40, "too few to estimate from");
        assert_eq!(cycles(0.2, 0.1), 10);
        assert_eq!(cycles(0.001, 0.2), 120);
        let between = cycles(0.05, 0.2);
        assert!((12..=40).contains(&between), "{between}");
    }
}
