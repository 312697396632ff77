//! Known values, degenerate input, and rates of false and missed claims.

use std::f64::consts::TAU;

use fastrand::Rng;

use super::*;
use crate::verdict::{ArmVerdict, Better, MIN_EQUAL_PAIRS, Verdict, smallest_difference};

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-4 * right.abs().max(1.0)
}

#[test]
fn quantiles_are_those_of_the_printed_tables() {
    for (probability, freedom, expected) in [
        (0.975, 2, 4.30265),
        (0.995, 4, 4.60409),
        (0.995, 2, 9.92484),
        (0.8, 4, 0.94096),
        (0.9995, 9, 4.78091),
    ] {
        let t = student_t(probability, freedom);
        assert!(t.is_some_and(|t| close(t, expected)), "{probability} {freedom}: {t:?}");
    }
    assert_eq!(student_t(0.975, 0), None);
    assert_eq!(student_t(1.0, 5), None);
}

#[test]
fn a_mean_has_the_error_jmh_prints() {
    // t(0.9995, 4) = 8.610302; standard deviation of 1..5 is √2.5.
    let five = mean_with_error(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.999);
    assert!(
        five.is_some_and(|m| m.mean == 3.0
            && m.error.is_some_and(|e| close(e, 8.610302 * (2.5_f64).sqrt() / 5_f64.sqrt())))
    );
    assert_eq!(mean_with_error(&[7.0], 0.999), Some(MeanWithError { mean: 7.0, error: None }));
    assert_eq!(mean_with_error(&[], 0.999), None);
}

#[test]
fn a_median_is_in_the_middle() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(median(&[]), None);
}

#[test]
fn a_ratio_is_the_geometric_mean_of_pairs() {
    let paired = PairedRatio::of(&[(10.0, 5.0), (10.0, 20.0), (10.0, 10.0)]);
    let ratio = paired.and_then(|p| p.ratio(0.95));
    // The logarithms are −ln 2, ln 2 and 0: mean 0, deviation ln 2.
    let half = (4.30265 * 2_f64.ln() / 3_f64.sqrt()).exp();
    assert!(ratio.is_some_and(|r| close(r.estimate, 1.0) && close(r.high, half) && close(r.low, 1.0 / half)));
}

#[test]
fn equal_figures_claim_nothing_and_divide_by_nothing() {
    let equal = PairedRatio::of(&[(2.0, 2.0); 5]);
    let ratio = equal.and_then(|p| p.ratio(0.95));
    assert!(
        ratio.is_some_and(|r| r.estimate == 1.0 && r.low < 0.99 && r.high > 1.01),
        "no interval is 0 wide"
    );
    assert_eq!(equal.and_then(|p| p.claim(1)), None);
    assert!(equal.and_then(|p| p.smallest_difference(1)).is_some_and(|d| d > 0.01 && d < 0.03));
    for (value, claimed) in [(2.0 + 1e-12, false), (2.019, false), (2.2, true), (1.8, true)] {
        let paired = PairedRatio::of(&[(2.0, value); 5]);
        assert_eq!(paired.and_then(|p| p.claim(1)).is_some(), claimed, "{value}");
    }
}

#[test]
fn what_has_no_ratio_gets_none() {
    for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(PairedRatio::of(&[(1.0, 1.0), (1.0, 1.0), (1.0, odd)]), None, "{odd}");
        assert_eq!(PairedRatio::of(&[(1.0, 1.0), (1.0, 1.0), (odd, 1.0)]), None, "{odd}");
    }
    assert_eq!(PairedRatio::of(&[(1.0, 2.0); 2]), None);
    assert_eq!(PairedRatio::of(&[]), None);
}

/// Distribution of a figure around its true value, in units of the noise.
#[derive(Clone, Copy, Debug)]
enum Noise {
    Normal,
    /// Student's t with 3 degrees of freedom, scaled to a standard deviation of 1.
    HeavyTailed,
    /// One run in ten is slower by 6 to 12 standard deviations, as when another program wakes up.
    Outliers,
    /// Slow and fast periods: a first-order autoregression over the runs, with a trend.
    Drift,
    /// One of two states, 4 standard deviations apart, with little noise in each.
    TwoStates,
}

fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (TAU * rng.f64()).cos()
}

/// `blocks` pairs of runs in random order, with `noise` as a share; the second of each pair takes `effect`
/// times as long as the first.
fn experiment(rng: &mut Rng, shape: Noise, noise: f64, blocks: usize, effect: f64) -> Vec<(f64, f64)> {
    let mut spell = normal(rng);
    let trend = normal(rng) * 4.0 / (2 * blocks) as f64;
    let mut run = 0.0;
    let mut figure = |rng: &mut Rng| {
        run += 1.0;
        let deviations = match shape {
            Noise::Normal => normal(rng),
            Noise::HeavyTailed => {
                let squares: f64 = (0..3).map(|_| normal(rng).powi(2)).sum();
                normal(rng) / squares.sqrt()
            }
            Noise::Outliers if rng.u8(..10) == 0 => 6.0 + 6.0 * rng.f64(),
            Noise::Outliers => normal(rng),
            Noise::Drift => {
                spell = 0.8 * spell + 0.6 * normal(rng);
                spell + trend * run
            }
            Noise::TwoStates => 4.0 * f64::from(rng.bool()) + 0.2 * normal(rng),
        };
        10.0 * (noise * deviations).exp()
    };
    (0..blocks)
        .map(|_| {
            let (first, second) = (figure(rng), figure(rng));
            let (reference, value) = if rng.bool() { (first, second) } else { (second, first) };
            (reference, value * effect)
        })
        .collect()
}

/// Shares of `trials` experiments with a claim, and with too much noise.
fn claimed(shape: Noise, noise: f64, blocks: usize, effect: f64, trials: usize) -> (f64, f64) {
    let mut rng = Rng::with_seed(0x5eed ^ ((blocks as u64) << 32) ^ (noise * 1e4) as u64);
    let (mut claims, mut noisy) = (0, 0);
    for _ in 0..trials {
        let paired = PairedRatio::of(&experiment(&mut rng, shape, noise, blocks, effect));
        if paired.is_some_and(|p| p.claim(1).is_some()) {
            claims += 1;
        } else if paired.and_then(|p| p.smallest_difference(1)).is_none_or(|d| d > 0.2) {
            noisy += 1;
        }
    }
    (claims as f64 / trials as f64, noisy as f64 / trials as f64)
}

#[test]
fn one_backing_against_itself_is_hardly_ever_called_different() {
    use Noise::*;
    for shape in [Normal, HeavyTailed, Outliers, Drift, TwoStates] {
        for noise in [0.01, 0.02, 0.04, 0.08] {
            let mut line = format!("{shape:?} {:.0} %:", noise * 100.0);
            for blocks in [3, 4, 5, 7, 10, 15] {
                let (claims, noisy) = claimed(shape, noise, blocks, 1.0, 4000);
                line += &format!("  {blocks}: {:.2}/{:.1}", claims * 100.0, noisy * 100.0);
                if !matches!(shape, TwoStates) {
                    assert!(claims < 0.015, "{shape:?}, noise {noise}, {blocks} blocks: {claims}");
                }
            }
            println!("{line}  (% claimed/too noisy)");
        }
    }
}

#[test]
fn a_true_gain_is_seen() {
    let (seen, _) = claimed(Noise::Normal, 0.03, 5, 0.85, 4000);
    println!("15 % at 3 % noise, 5 blocks: {:.1} %", seen * 100.0);
    assert!(seen > 0.95, "{seen}");
    for (shape, noise, blocks, effect) in [
        (Noise::Outliers, 0.02, 5, 0.85),
        (Noise::Outliers, 0.02, 10, 0.85),
        (Noise::HeavyTailed, 0.03, 5, 0.85),
        (Noise::Drift, 0.03, 5, 0.85),
        (Noise::Normal, 0.03, 10, 0.95),
        (Noise::Normal, 0.01, 5, 0.95),
        (Noise::Normal, 0.01, 3, 0.85),
    ] {
        let (seen, _) = claimed(shape, noise, blocks, effect, 2000);
        println!("{shape:?} {noise} {blocks} blocks, {effect}: {:.1} %", seen * 100.0);
    }
}

/// Share of `trials` experiments with the verdict "no difference", and with an interval as narrow.
fn called_equal(shape: Noise, noise: f64, blocks: usize, effect: f64, trials: usize) -> (f64, f64) {
    let mut rng = Rng::with_seed(0xe9a1 ^ ((blocks as u64) << 32) ^ (noise * 1e4) as u64);
    let (mut equal, mut narrow) = (0, 0);
    for _ in 0..trials {
        let Some(paired) = PairedRatio::of(&experiment(&mut rng, shape, noise, blocks, effect)) else {
            continue;
        };
        let verdict = ArmVerdict::from_ratio(&paired, 1, Better::Lower).verdict;
        equal += usize::from(verdict == Verdict::NoDifference);
        let is_narrow = paired.ratio(0.95).is_some_and(|ratio| ratio.low >= 0.9 && ratio.high <= 1.1);
        narrow += usize::from(is_narrow && paired.claim(1).is_none());
    }
    (equal as f64 / trials as f64, narrow as f64 / trials as f64)
}

#[test]
fn a_true_difference_is_hardly_ever_called_none() {
    for (shape, noise) in [(Noise::Normal, 0.08), (Noise::TwoStates, 0.04)] {
        for blocks in [MIN_EQUAL_PAIRS - 2, MIN_EQUAL_PAIRS, 10] {
            let (equal, narrow) = called_equal(shape, noise, blocks, 0.85, 2000);
            println!(
                "{shape:?} {noise} {blocks}: {:.2} % no difference, {:.2} % as narrow",
                equal * 100.0,
                narrow * 100.0
            );
            assert!(equal < 0.005, "{shape:?}, noise {noise}, {blocks} blocks: {equal}");
        }
    }
    let (equal, _) = called_equal(Noise::Normal, 0.02, MIN_EQUAL_PAIRS, 1.0, 2000);
    assert!(equal > 0.95, "equal backings are called so: {equal}");
    let (equal, narrow) = called_equal(Noise::Normal, 0.01, MIN_EQUAL_PAIRS - 1, 1.0, 2000);
    assert!(equal == 0.0 && narrow > 0.9, "too few pairs: {equal} {narrow}");
}

#[test]
fn the_smallest_difference_is_seen_four_times_in_five() {
    for (noise, blocks) in [(0.02, 5), (0.02, 10), (0.05, 15)] {
        let difference = smallest_difference(noise * 2_f64.sqrt(), blocks, 1).unwrap_or_default();
        let (seen, _) = claimed(Noise::Normal, noise, blocks, 1.0 + difference, 2000);
        println!("{noise} {blocks}: {difference:.3} seen {seen:.3}");
        assert!((0.7..0.9).contains(&seen), "{noise}, {blocks} blocks, {difference}: {seen}");
    }
}
