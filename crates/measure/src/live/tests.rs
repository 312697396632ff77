//! The engine on a simulated process.

use std::collections::BTreeMap;

use super::*;
use crate::{
    comparison::{Better, Case, live::Live},
    verdict::Verdict,
};

/// A process that does `base` operations per second on base pages, and `gain` times as many on huge pages; after a
/// transition it does none for half a second.
struct Made {
    now: Duration,
    count: f64,
    base: f64,
    gain: f64,
    huge: bool,
    disturbed_until: Duration,
    transition: Duration,
    /// Changes of the speed from sample to sample, as a share.
    noise: f64,
    random: fastrand::Rng,
    /// Coverage on huge pages.
    covered: f64,
    /// Coverage on base pages.
    covered_on_base: f64,
    end_at: Option<(Duration, Ending)>,
    refuses_at: usize,
    switches: usize,
}

fn made() -> Made {
    Made {
        now: Duration::from_secs(100),
        count: 0.0,
        base: 1000.0,
        gain: 1.25,
        huge: false,
        disturbed_until: Duration::ZERO,
        transition: Duration::from_millis(700),
        noise: 0.02,
        random: fastrand::Rng::with_seed(7),
        covered: 0.98,
        covered_on_base: 0.01,
        end_at: None,
        refuses_at: usize::MAX,
        switches: 0,
    }
}

impl LiveProcess for Made {
    fn switch(&mut self, to: Backing) -> Result<(), Reason> {
        self.switches += 1;
        if self.switches > self.refuses_at {
            return Reason::err("no huge pages");
        }
        if self.huge != (to != Backing::Base) {
            self.now += self.transition;
            self.huge = to != Backing::Base;
            self.disturbed_until = self.now + Duration::from_millis(500);
        }
        Ok(())
    }
    fn coverage(&mut self) -> Result<f64, Reason> {
        Ok(if self.huge { self.covered } else { self.covered_on_base })
    }
    fn sample(&mut self) -> Sample {
        Sample { at: self.now, values: vec![Some(self.count), None, Some(42.0)] }
    }
    fn must_end(&mut self) -> Option<Ending> {
        self.end_at.filter(|(at, _)| self.now >= *at).map(|(_, ending)| ending)
    }
    fn now(&self) -> Duration {
        self.now
    }
    fn wait(&mut self, time: Duration) {
        let works = (self.now + time).saturating_sub(self.disturbed_until.max(self.now));
        let noise = 1.0 + self.noise * (self.random.f64() * 2.0 - 1.0);
        let speed = self.base * noise * if self.huge { self.gain } else { 1.0 };
        self.count += works.as_secs_f64() * speed;
        self.now += time;
    }
}

fn quantities() -> Vec<Quantity> {
    let quantity = |name: &str, better, value| Quantity {
        figure: Figure { name: name.to_owned(), unit: String::new(), better },
        value,
    };
    vec![
        quantity("ops/s", Better::Higher, Value::Rate(0)),
        quantity("unknown", Better::Lower, Value::Rate(1)),
        quantity("level", Better::Lower, Value::Mean(2)),
    ]
}

fn settings() -> LiveSettings {
    LiveSettings {
        turn: Duration::from_secs(4),
        max_time: Duration::from_secs(600),
        pairs: None,
        max_transition: Duration::from_secs(5),
        least_coverage: 0.8,
    }
}

fn compared(process: &mut Made, settings: &LiveSettings, aa: bool) -> Comparison {
    let arms = if aa { [Backing::Base; 2] } else { [Backing::Base, Backing::Thp] };
    let mut comparison = Comparison {
        cases: vec![Case {
            workload: "made".to_owned(),
            embedded: false,
            command: Vec::new(),
            servers: Vec::new(),
            driver: Vec::new(),
            parameters: BTreeMap::new(),
            figures: quantities().into_iter().map(|quantity| quantity.figure).collect(),
        }],
        live: Some(Live::new(1, "heap", settings.turn)),
        ..Comparison::of_arms(arms.map(Into::into).to_vec())
    };
    comparison.design.seed = 11;
    comparison.design.aa = aa;
    conduct(process, &quantities(), settings, &mut comparison, &mut |_| {});
    analysis::analyse(&mut comparison);
    comparison
}

fn ending(comparison: &Comparison) -> Option<Ending> {
    comparison.live.as_ref().map(|live| live.ending)
}

#[test]
fn a_difference_is_found_without_the_transitions() {
    let comparison = compared(&mut made(), &settings(), false);
    let huge = &comparison.backings[1];
    assert_eq!((huge.verdict, ending(&comparison)), (Verdict::Faster, Some(Ending::Decided)));
    let ratio = huge.ratio.map_or(0.0, |ratio| ratio.estimate);
    assert!((ratio - 0.8).abs() < 0.01, "{ratio}");
    let rounds = comparison.rounds.len();
    assert_eq!((rounds % 2, comparison.design.rounds), (0, rounds / 2));
    let live = comparison.live.as_ref().map(|live| (live.turns.len(), live.is_steady));
    assert_eq!(live, Some((rounds, true)));
    assert!(comparison.rounds.iter().all(|round| round.figures.get("level") == Some(&42.0)));
}

#[test]
fn equal_arms_make_no_claim() {
    let claims = (0..40)
        .filter(|seed| {
            let mut process = Made { random: fastrand::Rng::with_seed(*seed), noise: 0.1, ..made() };
            let comparison = compared(&mut process, &settings(), true);
            matches!(comparison.backings[1].verdict, Verdict::Faster | Verdict::Slower)
        })
        .count();
    assert!(claims <= 2, "{claims}");
}

#[test]
fn it_ends_with_the_result_so_far() {
    let end = |at: u64, ending| Some((Duration::from_secs(100 + at), ending));
    let interrupted = compared(
        &mut Made { end_at: end(80, Ending::Interrupted), ..made() },
        &LiveSettings { pairs: Some(100), ..settings() },
        false,
    );
    assert_eq!(ending(&interrupted), Some(Ending::Interrupted));
    assert!(interrupted.rounds.len() > 6 && interrupted.backings[1].ratio.is_some());
    let ended = compared(&mut Made { end_at: end(3, Ending::ProcessEnded), ..made() }, &settings(), false);
    assert_eq!((ending(&ended), ended.rounds.len()), (Some(Ending::ProcessEnded), 0));
    assert_eq!(ended.backings[1].verdict, Verdict::Inconclusive);
    let short = LiveSettings { max_time: Duration::from_secs(40), ..settings() };
    let late = compared(&mut Made { noise: 0.5, ..made() }, &short, false);
    assert_eq!(ending(&late), Some(Ending::OutOfTime));
    let last = late.live.as_ref().and_then(|live| Some(live.turns.last()?.end_seconds));
    assert!(last.is_some_and(|end| end <= 40.0), "{last:?}");
}

#[test]
fn a_transition_that_fails_or_takes_too_long_ends_it() {
    let refused = compared(&mut Made { refuses_at: 5, ..made() }, &settings(), false);
    assert_eq!(ending(&refused), Some(Ending::TransitionFailed));
    let slow = compared(&mut Made { transition: Duration::from_secs(6), ..made() }, &settings(), false);
    assert_eq!(ending(&slow), Some(Ending::TransitionFailed));
    let detail = slow.live.and_then(|live| live.detail).unwrap_or_default();
    assert!(detail.contains("6.0 s") && detail.contains("--max-transition"), "{detail}");
}

#[test]
fn turns_without_their_pages_do_not_count() {
    let comparison = compared(&mut Made { covered: 0.5, ..made() }, &settings(), false);
    assert_eq!(comparison.backings[1].verdict, Verdict::FellBack);
    assert_eq!((ending(&comparison), comparison.design.rounds), (Some(Ending::FellBack), MIN_BLOCKS));
    // On base pages, too: more pairs would not change it.
    let never_base = compared(&mut Made { covered_on_base: 0.9, ..made() }, &settings(), false);
    assert_eq!((ending(&never_base), never_base.design.rounds), (Some(Ending::FellBack), MIN_BLOCKS));
}

#[test]
fn counters_have_rates_and_gauges_means() {
    let sample =
        |at: u64, count, level| Sample { at: Duration::from_secs(at), values: vec![count, None, level] };
    let samples = [sample(0, None, Some(1.0)), sample(1, Some(5.0), Some(2.0)), sample(3, Some(25.0), None)];
    let expected = BTreeMap::from([("ops/s".to_owned(), 10.0), ("level".to_owned(), 1.5)]);
    assert_eq!(rates(&samples, &quantities()), expected);
    // A counter that was reset has no rate.
    let reset = [sample(0, Some(5.0), None), sample(1, Some(1.0), None), sample(2, Some(9.0), None)];
    assert!(rates(&reset, &quantities()).is_empty());
    assert!(rates(&[], &quantities()).is_empty());
}

#[test]
fn a_quotient_needs_enough_events() {
    let sample = |at: u64, cpu: f64, bytes: f64, events: f64| Sample {
        at: Duration::from_secs(at),
        values: vec![Some(cpu), Some(bytes), Some(events)],
    };
    let value = Value::Quotient { dividend: 0, divisor: 1, events: Some(2) };
    let many = [sample(0, 3.0, 100.0, 7.0), sample(5, 5.0, 140.0, 7.0 + MIN_EVENTS)];
    assert_eq!(value.of(&many), Some(0.05));
    let few = [sample(0, 3.0, 100.0, 7.0), sample(5, 5.0, 140.0, 8.0)];
    assert_eq!((value.of(&few), value.of_any_number().of(&few)), (None, Some(0.05)));
    // Nothing was allocated.
    let none = [sample(0, 3.0, 100.0, 7.0), sample(5, 5.0, 100.0, 7.0 + MIN_EVENTS)];
    assert_eq!(value.of(&none), None);
}

#[test]
fn rates_are_steady_when_they_are_as_at_the_end() {
    assert_eq!(steady_after(&[10.0; 8]), Some(0));
    assert_eq!(steady_after(&[2.0, 6.0, 9.9, 10.0, 10.1, 10.0, 9.9, 10.0]), Some(2));
    assert_eq!(steady_after(&[10.0; 3]), None);
    assert_eq!(steady_after(&[1.0, 1.0, 1.0, 1.0, 1.0, 10.0, 10.0, 10.0, 10.0, 10.0]), Some(5));
}
