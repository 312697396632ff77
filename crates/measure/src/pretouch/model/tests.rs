use std::error::Error;

use super::*;
use crate::pretouch::prediction::{Check, PredictionError, Threads};

type TestResult = Result<(), Box<dyn Error>>;

const GIB_BYTES: u64 = 1 << 30;

/// Model of a machine: a fixed cost, a cost per base page, a cost per byte, and a limit of the memory
/// bandwidth that threads share.
struct Machine {
    fixed: f64,
    per_page: f64,
    per_gib: f64,
    /// Memory bandwidth, in GiB per second.
    bandwidth: f64,
    /// Standard deviation of the logarithm of a time.
    noise: f64,
    /// Exponent of the growth of a GiB's cost with the size.
    bend: f64,
}

const QUIET: Machine =
    Machine { fixed: 0.002, per_page: 400e-9, per_gib: 0.12, bandwidth: 12.0, noise: 0.0, bend: 0.0 };

impl Machine {
    fn seconds(&self, backing: Backing, threads: usize, bytes: u64) -> f64 {
        let gib = bytes as f64 / GIB;
        let pages = if backing == Backing::Base { bytes / 4096 } else { 0 };
        let work = self.per_page * pages as f64 + self.per_gib * gib * gib.powf(self.bend);
        self.fixed + (work / threads as f64).max(gib / self.bandwidth)
    }

    fn measure(&self, sizes: &[u64], processes: usize, random: &mut fastrand::Rng) -> Vec<Measured> {
        let mut measured = Vec::new();
        for backing in [Backing::Base, Backing::Thp] {
            for threads in [1, 2] {
                for &bytes in sizes {
                    for _ in 0..processes {
                        let seconds =
                            self.seconds(backing, threads, bytes) * (self.noise * normal(random)).exp();
                        measured.push(Measured { backing, threads, bytes: Bytes(bytes), seconds });
                    }
                }
            }
        }
        measured
    }
}

/// Standard normal deviate (Box and Muller, 1958).
fn normal(random: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

fn near(value: f64, expected: f64, share: f64) -> bool {
    (value / expected - 1.0).abs() <= share
}

const SIZES: [u64; 4] = [GIB_BYTES / 64, GIB_BYTES / 4, GIB_BYTES, 4 * GIB_BYTES];

#[test]
fn the_costs_of_a_quiet_machine_are_found() -> TestResult {
    let model = fit(&QUIET.measure(&SIZES, 3, &mut fastrand::Rng::with_seed(1)))?;
    assert!(near(model.fixed_seconds, 0.002, 1e-6), "{}", model.fixed_seconds);
    let costs = model.costs(Bytes(4096)).ok_or("no costs")?;
    assert!(near(costs.seconds_per_gib, 0.12, 1e-6) && near(costs.seconds_per_base_page * 1e9, 400.0, 1e-6));
    let gains = model.gains();
    assert!(near(gains[0].speedup, 2.0, 1e-6), "base pages: the CPUs limit: {gains:?}");
    // 0.06 s per GiB would exceed the memory bandwidth.
    assert!(near(gains[1].bytes_per_second, 12.0 * GIB, 1e-6) && gains[1].speedup < 1.5, "{gains:?}");
    assert!(model.residuals.iter().all(|r| near(r.measured_seconds, r.modelled_seconds, 1e-6)));
    Ok(())
}

#[test]
fn a_limit_that_threads_do_not_pass_is_seen() -> TestResult {
    let narrow = Machine { bandwidth: 8.0, ..QUIET };
    let model = fit(&narrow.measure(&SIZES, 3, &mut fastrand::Rng::with_seed(1)))?;
    let at_limit: Vec<bool> = model.gains().iter().map(|gain| gain.at_limit).collect();
    assert_eq!(at_limit, [false, true]);
    Ok(())
}

/// Share of experiments in which the time of a new process at `bytes` lies in the interval.
fn covered(machine: &Machine, sizes: &[u64], bytes: u64) -> Result<f64, Box<dyn Error>> {
    const EXPERIMENTS: usize = 400;
    let mut random = fastrand::Rng::with_seed(7);
    let mut inside = 0;
    for _ in 0..EXPERIMENTS {
        let model = fit(&machine.measure(sizes, 5, &mut random))?;
        let prediction = model.predict(Bytes(bytes), Backing::Thp, 2)?;
        let measured = machine.seconds(Backing::Thp, 2, bytes) * (machine.noise * normal(&mut random)).exp();
        inside += usize::from(Check::of(prediction, vec![measured]).is_some_and(|check| check.inside));
    }
    Ok(inside as f64 / EXPERIMENTS as f64)
}

#[test]
fn twice_the_largest_size_lies_in_its_interval() -> TestResult {
    let sizes = [GIB_BYTES / 2, GIB_BYTES, 2 * GIB_BYTES];
    for noise in [0.01, 0.05, 0.2] {
        for bend in [0.0, 0.03, 0.3] {
            let covered = covered(&Machine { noise, bend, ..QUIET }, &sizes, 4 * GIB_BYTES)?;
            assert!(covered >= 0.94, "noise {noise}, bend {bend}: {covered}");
        }
    }
    Ok(())
}

#[test]
fn a_thousandfold_size_lies_in_its_interval_too() -> TestResult {
    let sizes = [GIB_BYTES, 2 * GIB_BYTES, 4 * GIB_BYTES];
    for (noise, bend) in [(0.02, 0.0), (0.05, 0.0), (0.02, 0.02)] {
        let covered = covered(&Machine { noise, bend, ..QUIET }, &sizes, 4096 * GIB_BYTES)?;
        assert!(covered >= 0.94, "noise {noise}, bend {bend}: {covered}");
    }
    Ok(())
}

#[test]
fn intervals_grow_with_the_distance() -> TestResult {
    let noisy = Machine { noise: 0.03, ..QUIET };
    let model = fit(&noisy.measure(&SIZES, 5, &mut fastrand::Rng::with_seed(3)))?;
    let width = |bytes: u64| {
        let prediction = model.predict(Bytes(bytes), Backing::Base, 1)?;
        Ok::<f64, PredictionError>(prediction.high_seconds / prediction.low_seconds)
    };
    let widths =
        [width(GIB_BYTES)?, width(8 * GIB_BYTES)?, width(512 * GIB_BYTES)?, width(4096 * GIB_BYTES)?];
    assert!(widths.windows(2).all(|pair| pair[0] < pair[1]), "{widths:?}");
    assert!(widths[0] > 1.0 && widths[3] < 10.0, "{widths:?}");
    Ok(())
}

#[test]
fn threads_that_were_not_measured_are_bounded() -> TestResult {
    let model = fit(&QUIET.measure(&SIZES, 3, &mut fastrand::Rng::with_seed(1)))?;
    let at = |threads: usize| model.predict(Bytes(64 * GIB_BYTES), Backing::Base, threads);
    let (two, eight) = (at(2)?, at(8)?);
    assert_eq!((two.threads_are, eight.threads_are), (Threads::Measured, Threads::Beyond));
    assert!(eight.seconds.is_none() && near(eight.high_seconds, two.high_seconds, 1e-9));
    assert!(near(eight.low_seconds, two.low_seconds / 4.0, 1e-9));
    assert_eq!(
        model.predict(Bytes(1), Backing::Hugetlb(None), 1),
        Err(PredictionError::NotMeasured(Backing::Hugetlb(None)))
    );
    let of_more = |threads: &dyn Fn(usize) -> bool| {
        let all = QUIET.measure(&SIZES, 3, &mut fastrand::Rng::with_seed(1));
        let kept = all.into_iter().map(|one| Measured { threads: one.threads * 4, ..one });
        fit(&kept.filter(|one| threads(one.threads)).collect::<Vec<_>>())
    };
    let (one, six) = {
        let model = of_more(&|_| true)?;
        (
            model.predict(Bytes(GIB_BYTES), Backing::Base, 1)?,
            model.predict(Bytes(GIB_BYTES), Backing::Base, 6)?,
        )
    };
    assert_eq!((one.threads_are, six.threads_are), (Threads::Below, Threads::Between));
    assert!(one.high_seconds > 3.0 * one.low_seconds && six.high_seconds > 1.5 * six.low_seconds);
    Ok(())
}

#[test]
fn too_little_makes_no_model() {
    let one_size = QUIET.measure(&[GIB_BYTES], 5, &mut fastrand::Rng::with_seed(1));
    assert_eq!(fit(&one_size), Err(FitError::TooFewSizes));
    assert_eq!(fit(&[]), Err(FitError::TooFewSizes));
    let nothing = Measured { backing: Backing::Base, threads: 1, bytes: Bytes(0), seconds: 1.0 };
    assert_eq!(fit(&[nothing]), Err(FitError::NotPositive));
}

proptest::proptest! {
    #[test]
    fn no_times_make_it_panic(
        times in proptest::collection::vec((0u64..1 << 45, 1usize..4, proptest::num::f64::ANY), 0..12)
    ) {
        let one = |(bytes, threads, seconds)| Measured { backing: Backing::Thp, threads, bytes: Bytes(bytes), seconds };
        let measured: Vec<Measured> = times.into_iter().map(one).collect();
        if let Ok(model) = fit(&measured) {
            for threads in 1..5 {
                if let Ok(prediction) = model.predict(Bytes(1 << 42), Backing::Thp, threads) {
                    proptest::prop_assert!(
                        prediction.low_seconds <= prediction.high_seconds || prediction.low_seconds.is_nan()
                    );
                }
            }
        }
    }
}
