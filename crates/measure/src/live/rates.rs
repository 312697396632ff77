//! Rates of the quantities in a turn, and the time until they are steady.

use super::{Quantity, Rates, Sample};
use crate::statistics;

/// Tolerance of a steady rate around its median, as a share, besides the spread of the last rates.
const STEADY_TOLERANCE: f64 = 0.02;
/// Fewest rates from which a steady state follows.
const MIN_RATES: usize = 6;

/// The figures of a turn: of a counter, the increase per second between the first and the last known value; else
/// the mean. A counter that decreased was reset, and is absent.
pub fn rates(samples: &[Sample], quantities: &[Quantity]) -> Rates {
    let of = |(index, quantity): (usize, &Quantity)| {
        let known: Vec<(f64, f64)> = samples
            .iter()
            .filter_map(|sample| {
                Some((sample.at.as_secs_f64(), sample.values.get(index).copied().flatten()?))
            })
            .collect();
        let value = if quantity.is_counter {
            let (&(begin, first), &(end, last)) = (known.first()?, known.last()?);
            let is_reset = known.windows(2).any(|two| two[1].1 < two[0].1);
            (end > begin && !is_reset).then(|| (last - first) / (end - begin))
        } else {
            statistics::mean(&known.iter().map(|(_, value)| *value).collect::<Vec<f64>>())
        };
        Some((quantity.figure.name.clone(), value.filter(|value| value.is_finite())?))
    };
    quantities.iter().enumerate().filter_map(of).collect()
}

/// The number of rates after which all others are as those of the last half: within their spread around their
/// median, plus `STEADY_TOLERANCE`. `None` if there are too few, or if they are not steady before the last half.
pub fn steady_after(rates: &[f64]) -> Option<usize> {
    if rates.len() < MIN_RATES {
        return None;
    }
    let last = &rates[rates.len() / 2..];
    let middle = statistics::median(last)?;
    let spread = last.iter().map(|rate| (rate - middle).abs()).fold(0.0, f64::max);
    let tolerance = spread + middle.abs() * STEADY_TOLERANCE;
    let unsteady = rates.iter().rposition(|rate| (rate - middle).abs() > tolerance);
    let after = unsteady.map_or(0, |index| index + 1);
    (after <= rates.len() / 2).then_some(after)
}
