//! Verdicts on synthetic comparisons.

use std::collections::BTreeMap;

use hugewise_linux::hugepages::backing::Backing;

use super::*;
use crate::comparison::{LeftOut, Turns};

/// A case with the figure `wall`; `runs[arm][block]` is in seconds.
fn comparison(better: Better, runs: &[&[f64]]) -> Comparison {
    let arms = [Backing::Base, Backing::Thp, Backing::Hugetlb(None)];
    let figure = Figure { name: "wall".to_owned(), unit: "s".to_owned(), better };
    let rounds = runs.iter().enumerate().flat_map(|(arm, seconds)| {
        seconds.iter().enumerate().map(move |(block, seconds)| Round {
            case: 0,
            arm,
            block: Some(block),
            fell_back: None,
            figures: BTreeMap::from([("wall".to_owned(), *seconds)]),
            coverage: Some(if arm == 0 { 0.0 } else { 0.9 }),
            turns: None,
            off_heap_coverage: None,
            server_coverage: Vec::new(),
            huge_pages_left: None,
        })
    });
    Comparison {
        cases: vec![Case {
            workload: "test".to_owned(),
            embedded: false,
            command: vec!["test".to_owned()],
            servers: Vec::new(),
            driver: Vec::new(),
            parameters: BTreeMap::new(),
            figures: vec![figure],
        }],
        rounds: rounds.collect(),
        ..Comparison::of_arms(arms[..runs.len()].iter().map(|backing| (*backing).into()).collect())
    }
}

fn analysed(mut comparison: Comparison) -> Vec<BackingResult> {
    analyse(&mut comparison);
    comparison.backings
}

const BASE: [f64; 5] = [10.0, 10.2, 9.9, 10.1, 10.0];
const FAST: [f64; 5] = [8.0, 8.1, 8.0, 8.2, 7.9];

#[test]
fn a_clear_gain_is_faster_and_its_reverse_slower() {
    let results = analysed(comparison(Better::Lower, &[&BASE, &FAST]));
    assert_eq!(results[0].verdict, Verdict::Base);
    assert_eq!(results[0].ratio, None);
    assert_eq!(results[1].verdict, Verdict::Faster);
    assert!(results[1].ratio.is_some_and(|r| r.low < 0.8 && r.estimate < 0.82 && r.high < 0.85));
    assert_eq!(results[1].coverage, Some(0.9));
    assert_eq!((results[1].rounds, results[1].rounds_fallen_back), (5, 0));
    assert_eq!(analysed(comparison(Better::Lower, &[&FAST, &BASE]))[1].verdict, Verdict::Slower);
}

#[test]
fn a_throughput_is_turned_so_that_below_one_is_better() {
    let results = analysed(comparison(Better::Higher, &[&FAST, &BASE]));
    assert_eq!(results[1].verdict, Verdict::Faster);
    assert!(results[1].ratio.is_some_and(|r| r.high < 1.0));
    assert!(results[1].figures[0].ratio.is_some_and(|r| r.high < 1.0));
    assert!(results[1].figures[0].mean > 10.0, "the figure itself is not turned");
}

#[test]
fn no_difference_says_between_which_bounds() {
    let results = analysed(comparison(Better::Lower, &[&BASE, &[10.1, 10.0, 10.1, 9.9, 10.1]]));
    assert_eq!(results[1].verdict, Verdict::NoDifference);
    assert!(results[1].smallest_difference.is_some_and(|d| d > 0.01 && d < 0.1));
    assert!(results[1].reason.as_ref().is_some_and(|r| r.contains("between")));
}

#[test]
fn noise_and_few_rounds_are_called_so() {
    let results = analysed(comparison(Better::Lower, &[&BASE, &[8.0, 14.0, 9.0, 17.0, 7.0]]));
    assert_eq!(results[1].verdict, Verdict::Inconclusive);
    assert!(results[1].reason.as_ref().is_some_and(|r| r.contains("rounds of each backing")), "{results:?}");

    let results = analysed(comparison(Better::Lower, &[&BASE[..2], &FAST[..2]]));
    assert_eq!(results[1].verdict, Verdict::Inconclusive);
    assert_eq!((results[1].ratio, results[1].smallest_difference), (None, None));
    assert!(results[1].reason.as_ref().is_some_and(|r| r.contains("of 3 that are needed")), "{results:?}");
}

#[test]
fn noise_asks_for_more_blocks_until_there_are_enough() {
    assert!(suffices(&comparison(Better::Lower, &[&BASE, &FAST]), 0));
    let noisy = comparison(Better::Lower, &[&BASE, &FAST, &[8.0, 14.0, 9.0, 17.0, 7.0]]);
    assert!(!suffices(&noisy, 0), "one arm is not decided");
    assert!(!suffices(&comparison(Better::Lower, &[&BASE[..4], &FAST[..4]]), 0), "too few blocks");
    assert!(!suffices(&comparison(Better::Lower, &[&[], &[]]), 0));
    assert!(!suffices(&noisy, 9), "no such case");
    let mut left_out = noisy;
    left_out.left_out.push(LeftOut { case: 0, arm: 2, reason: "no pool".to_owned() });
    assert!(suffices(&left_out, 0), "only arms that run are awaited");
}

/// A machine that doubles its speed between two cycles changes both arms alike.
#[test]
fn turns_are_compared_within_their_cycle() {
    let mut comparison = comparison(Better::Lower, &[&[1.0; 6], &[1.0; 6]]);
    for round in &mut comparison.rounds {
        let speed = if round.arm == 0 { 10.0 } else { 8.0 };
        let values = (0..10).map(|cycle| speed * f64::from(1 << (cycle % 3))).collect();
        round.turns = Some(Turns { figure: "wall".to_owned(), values, cpu: Some(0) });
    }
    let results = analysed(comparison);
    assert_eq!(results[1].verdict, Verdict::Faster);
    assert!(results[1].ratio.is_some_and(|r| (r.estimate - 0.8).abs() < 1e-9));
}

#[test]
fn a_figure_of_zero_has_no_ratio() {
    let results = analysed(comparison(Better::Lower, &[&[0.0; 4], &[1.0; 4], &[0.0; 4]]));
    for result in &results[1..] {
        assert_eq!((result.verdict, result.ratio), (Verdict::Inconclusive, None));
        assert!(result.reason.as_ref().is_some_and(|r| r.contains("zero or below")));
    }
}

#[test]
fn what_is_no_number_is_as_good_as_missing() {
    let mut comparison = comparison(Better::Lower, &[&BASE, &FAST]);
    comparison.rounds[6].figures.insert("wall".to_owned(), f64::NAN);
    comparison.rounds[7].figures.clear();
    let results = analysed(comparison);
    assert_eq!(results[1].verdict, Verdict::Faster);
    assert!(results[1].figures[0].mean.is_finite());

    let extreme = [1e-300, 1e300, 1e-300, 1e300];
    let results = analysed(self::comparison(Better::Lower, &[&extreme, &[1.0; 4]]));
    assert_eq!(results[1].verdict, Verdict::Inconclusive);
    assert!(serde_json::to_string(&results).is_ok_and(|json| !json.contains("\"high\":null")));
}

#[test]
fn warm_ups_and_fallen_rounds_do_not_count() {
    let mut comparison = comparison(Better::Lower, &[&BASE, &FAST]);
    comparison.rounds[9].fell_back = Some("the pool was empty".to_owned());
    comparison.rounds[9].figures.insert("wall".to_owned(), 1e9);
    let mut warm_up = comparison.rounds[5].clone();
    warm_up.block = None;
    warm_up.figures.insert("wall".to_owned(), 1e9);
    comparison.rounds.push(warm_up);
    let results = analysed(comparison);
    assert_eq!(results[1].verdict, Verdict::Faster);
    assert_eq!((results[1].rounds, results[1].rounds_fallen_back), (4, 1));
    assert!(results[1].figures[0].max < 9.0);
    let reason = results[1].reason.clone().unwrap_or_default();
    assert!(
        reason.contains("1 of 5 rounds do not count; most frequent cause: the pool was empty"),
        "{reason}"
    );
}

#[test]
fn an_arm_that_fell_back_too_often_names_the_commonest_cause() {
    let mut comparison = comparison(Better::Lower, &[&BASE[..4], &FAST[..4]]);
    for (round, cause) in [(4, "odd"), (5, "pool too small"), (6, "pool too small")] {
        comparison.rounds[round].fell_back = Some(cause.to_owned());
    }
    let results = analysed(comparison.clone());
    assert_eq!(results[1].verdict, Verdict::FellBack);
    assert!(
        results[1]
            .reason
            .as_ref()
            .is_some_and(|r| r.ends_with("3 of 4 rounds do not count; most frequent cause: pool too small"))
    );
    assert_eq!(results[1].ratio, None);

    // Exactly half is not more than half.
    comparison.rounds[4].fell_back = None;
    assert_eq!(analysed(comparison.clone())[1].verdict, Verdict::FellBack);

    // What those that fell back got is the evidence.
    for round in &mut comparison.rounds[4..] {
        round.fell_back = Some("pool too small".to_owned());
        round.coverage = Some(0.1);
    }
    let results = analysed(comparison);
    assert!(results[1].coverage.is_some_and(|c| (c - 0.1).abs() < 1e-9));
    assert!(matches!(&results[1].figures[..], [wall] if wall.mean > 0.0 && wall.ratio.is_none()));
}

#[test]
fn a_reference_that_fell_back_leaves_nothing_to_compare_with() {
    let mut comparison = comparison(Better::Lower, &[&BASE, &FAST]);
    for round in &mut comparison.rounds[..5] {
        round.fell_back = Some("no pool".to_owned());
    }
    let results = analysed(comparison);
    assert_eq!(results[0].verdict, Verdict::FellBack);
    assert_eq!(results[1].verdict, Verdict::Inconclusive);
    assert!(
        results[1].reason.as_ref().is_some_and(|r| r.contains("reference: 5 of 5") && r.contains("no pool"))
    );
}

#[test]
fn what_was_left_out_keeps_its_row_and_its_reason() {
    let mut comparison = comparison(Better::Lower, &[&BASE, &FAST, &[]]);
    comparison.left_out.push(LeftOut { case: 0, arm: 2, reason: "no pool of 2MiB pages".to_owned() });
    let results = analysed(comparison);
    assert_eq!(results.len(), 3);
    assert_eq!(results[2].verdict, Verdict::LeftOut);
    assert_eq!(results[2].reason.as_deref(), Some("no pool of 2MiB pages"));
    assert_eq!((results[2].rounds, results[2].coverage), (0, None));
}

#[test]
fn a_case_without_figures_or_rounds_is_no_panic() {
    let mut comparison = comparison(Better::Lower, &[&[], &[]]);
    assert_eq!(analysed(comparison.clone())[1].verdict, Verdict::Inconclusive);
    comparison.cases[0].figures.clear();
    assert_eq!(analysed(comparison)[1].verdict, Verdict::Inconclusive);
}

#[test]
fn slow_populating_is_explained_where_the_host_takes_memory_back() {
    let seconds: &[&[f64]] = &[&[0.4, 0.41, 0.4, 0.42], &[0.8, 0.83, 0.85, 0.82]];
    let mut comparison = comparison(Better::Lower, seconds);
    comparison.cases[0].figures[0].name = POPULATE.to_owned();
    for round in &mut comparison.rounds {
        round.figures = round.figures.values().map(|value| (POPULATE.to_owned(), *value)).collect();
    }
    assert_eq!(slow_populating(&comparison), None);
    comparison.machine.host_takes_back_free_memory = true;
    assert!(slow_populating(&comparison).is_some_and(|why| why.contains("hugetlb")));
    comparison.rounds.iter_mut().for_each(|round| round.arm = 1 - round.arm);
    assert_eq!(slow_populating(&comparison), None);
}

#[test]
fn the_busiest_blocks_do_not_count_for_turns() {
    let seconds: &[&[f64]] = &[&[1.0; 10], &[0.8; 10]];
    let mut comparison = comparison(Better::Lower, seconds);
    for round in &mut comparison.rounds {
        let block = round.block.unwrap_or_default();
        // In one block the host is busy, and the arms meet different loads.
        let load = if block == 3 { 2.0 + round.arm as f64 } else { 1.0 + 0.01 * block as f64 };
        let time = load * if round.arm == 0 { 1.0 } else { 0.8 };
        round.turns = Some(Turns { figure: "wall".to_owned(), values: vec![time; 40], cpu: None });
    }
    let results = analysed(comparison);
    assert_eq!((results[1].verdict, results[1].blocks_too_busy), (Verdict::Faster, 1));
    assert!(results[1].ratio.is_some_and(|ratio| (ratio.estimate - 0.8).abs() < 1e-9));
}
