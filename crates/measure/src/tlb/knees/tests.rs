//! Curves with known knees, and curves without knees.

use proptest::prelude::*;

use super::{Knee, knees};
use crate::tlb::curve::{Point, grid, within_a_step};

/// Time of a load that hits everything, in nanoseconds.
const LOAD: f64 = 1.25;

/// A curve over the grid with uniform noise of ± `noise` nanoseconds.
fn curve(most: usize, seed: u64, noise: f64, level: impl Fn(f64) -> f64) -> Vec<Point> {
    let mut random = fastrand::Rng::with_seed(seed);
    let points = grid(most).into_iter().map(|pages| {
        let ns = level(pages as f64) + noise * (2.0 * random.f64() - 1.0);
        Point { pages: pages as u64, ns, spread: noise * random.f64() / 3.0 }
    });
    points.collect()
}

/// Completed share of a step at `pages`, 0 to 1, for a step of `octaves` octaves around `capacity`.
fn smooth(pages: f64, capacity: f64, octaves: f64) -> f64 {
    let past = (pages / capacity).log2() / octaves.max(0.01);
    (past + 0.5).clamp(0.0, 1.0)
}

fn pages(knees: &[Knee]) -> Vec<u64> {
    knees.iter().map(|knee| knee.pages).collect()
}

proptest! {
    #[test]
    fn two_levels_are_found(
        first in 8u32..128, factor in 8u32..32, octaves in 0.0f64..1.0,
        low in 1.0f64..4.0, high in 8.0f64..60.0, noise in 0.0f64..0.06, seed: u64,
    ) {
        let second = f64::from(first * factor);
        let first = f64::from(first);
        let level = |pages: f64| {
            low * smooth(pages, first, octaves) + (high - low) * smooth(pages, second, octaves)
        };
        let found = knees(&curve(16_384, seed, noise, level), LOAD);
        prop_assert_eq!(found.len(), 2, "{:?}", found);
        prop_assert!(within_a_step(found[0].pages, first as u64), "{:?} is not {}", found, first);
        prop_assert!(within_a_step(found[1].pages, second as u64), "{:?} is not {}", found, second);
        prop_assert!((found[0].above - low).abs() < 0.2 * low && (found[1].above - high).abs() < 0.2 * high);
        prop_assert!(!found[0].cut_off && !found[1].cut_off);
    }

    #[test]
    fn noise_has_no_knee(level in 0.0f64..20.0, noise in 0.0f64..3.0, seed: u64) {
        prop_assert_eq!(pages(&knees(&curve(8192, seed, noise, |_| level), LOAD)), Vec::<u64>::new());
    }

    #[test]
    fn a_slope_has_no_knee(to_the_octave in 0.0f64..6.0, noise in 0.0f64..0.1, seed: u64) {
        let slope = |pages: f64| to_the_octave * pages.log2();
        prop_assert_eq!(pages(&knees(&curve(8192, seed, noise, slope), LOAD)), Vec::<u64>::new());
    }

    #[test]
    fn a_spike_has_no_knee(at in 8usize..60, height in 1.0f64..50.0, noise in 0.0f64..0.05, seed: u64) {
        let mut curve = curve(8192, seed, noise, |_| 0.0);
        curve[at].ns += height;
        prop_assert_eq!(pages(&knees(&curve, LOAD)), Vec::<u64>::new());
    }

    #[test]
    fn nothing_makes_it_panic(
        values in prop::collection::vec((any::<u64>(), any::<f64>(), any::<f64>()), 0..40), load: f64,
    ) {
        let curve: Vec<Point> =
            values.into_iter().map(|(pages, ns, spread)| Point { pages, ns, spread }).collect();
        let _ = knees(&curve, load);
    }
}

#[test]
fn a_rise_that_the_curve_cuts_off_says_so() {
    let found = knees(&curve(2304, 1, 0.0, |pages| 20.0 * smooth(pages, 2048.0, 1.0)), LOAD);
    assert!(found.len() == 1 && found[0].cut_off, "{found:?}");
}

/// Recorded on a virtual machine: first level, second level, and a slow rise of the page walks.
#[test]
fn a_recorded_curve_has_its_two_knees() {
    let recorded = [
        (8, 0.0),
        (10, 0.0),
        (12, 0.0),
        (14, 0.0),
        (16, 0.0),
        (20, 0.0),
        (24, 0.0),
        (28, 0.0),
        (32, 0.0),
        (40, 0.0),
        (48, 0.0),
        (56, 0.0),
        (64, 0.0),
        (72, 0.0),
        (80, 0.0),
        (88, 0.0),
        (96, 0.0),
        (104, 0.65),
        (112, 1.15),
        (120, 1.44),
        (128, 1.75),
        (144, 1.75),
        (160, 1.75),
        (192, 1.74),
        (224, 1.75),
        (256, 1.75),
        (320, 1.75),
        (384, 1.75),
        (448, 1.75),
        (512, 1.75),
        (640, 1.75),
        (768, 1.75),
        (832, 1.87),
        (896, 1.8),
        (1024, 1.76),
        (1280, 1.76),
        (1408, 1.78),
        (1536, 2.15),
        (1664, 2.73),
        (1792, 4.17),
        (1920, 5.68),
        (2048, 7.15),
        (2304, 11.63),
        (2560, 14.35),
        (2816, 15.54),
        (3072, 15.4),
        (3328, 15.55),
        (3584, 15.5),
        (3840, 15.69),
        (4096, 15.72),
        (4608, 15.85),
        (5120, 16.21),
        (5632, 16.21),
        (6144, 16.24),
        (6656, 16.19),
        (7168, 16.14),
        (7680, 16.09),
        (8192, 16.23),
        (9216, 16.41),
        (10240, 17.18),
        (11264, 18.12),
        (12288, 19.98),
        (13312, 21.43),
        (14336, 23.25),
        (15360, 25.83),
        (16384, 27.7),
    ];
    let curve: Vec<Point> = recorded.map(|(pages, ns)| Point { pages, ns, spread: 0.1 }).to_vec();
    let found = knees(&curve, LOAD);
    assert_eq!(pages(&found[..2]), [104, 2048], "{found:?}");
    // Compared with 16.2 ns this rise is a step, and the curve ends before it does.
    assert!(found[2..].iter().all(|knee| knee.cut_off), "{found:?}");
}
