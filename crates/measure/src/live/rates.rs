//! Rates of the quantities in a turn, and the time until they are steady.

use super::{MIN_EVENTS, Quantity, Rates, Sample, Value};
use crate::statistics;

/// Tolerance of a steady rate around its median, as a share, besides the spread of the last rates.
const STEADY_TOLERANCE: f64 = 0.02;
/// Fewest rates from which a steady state follows.
const MIN_RATES: usize = 6;

/// The figures of a turn by name; those that are unknown are absent.
pub fn rates(samples: &[Sample], quantities: &[Quantity]) -> Rates {
    let of = |quantity: &Quantity| Some((quantity.figure.name.clone(), quantity.value.of(samples)?));
    quantities.iter().filter_map(of).collect()
}

impl Value {
    /// The value over these samples. A counter that decreased was reset, and has none.
    pub(super) fn of(self, samples: &[Sample]) -> Option<f64> {
        let value = match self {
            Value::Rate(index) => {
                let (increase, seconds) = increase(samples, index)?;
                increase / seconds
            }
            Value::Mean(index) => {
                let known: Vec<f64> = known(samples, index).map(|(_, value)| value).collect();
                statistics::mean(&known)?
            }
            Value::Quotient { dividend, divisor, events } => {
                let enough = |index| increase(samples, index).is_some_and(|(events, _)| events >= MIN_EVENTS);
                if !events.is_none_or(enough) {
                    return None;
                }
                increase(samples, dividend)?.0 / increase(samples, divisor)?.0
            }
        };
        value.is_finite().then_some(value)
    }

    /// The same value, regardless of the number of events.
    pub(super) fn of_any_number(self) -> Value {
        match self {
            Value::Quotient { dividend, divisor, .. } => Value::Quotient { dividend, divisor, events: None },
            other => other,
        }
    }
}

/// The known values of a quantity, with their times in seconds.
fn known(samples: &[Sample], index: usize) -> impl Iterator<Item = (f64, f64)> {
    samples.iter().filter_map(move |sample| {
        Some((sample.at.as_secs_f64(), sample.values.get(index).copied().flatten()?))
    })
}

/// The increase of a counter between the first and the last known value, and the time between them in seconds.
fn increase(samples: &[Sample], index: usize) -> Option<(f64, f64)> {
    let known: Vec<(f64, f64)> = known(samples, index).collect();
    let (&(begin, first), &(end, last)) = (known.first()?, known.last()?);
    let is_reset = known.windows(2).any(|two| two[1].1 < two[0].1);
    (end > begin && !is_reset).then_some((last - first, end - begin))
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
