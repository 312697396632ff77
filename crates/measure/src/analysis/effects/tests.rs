//! Effects of known sizes in synthetic factorial designs.

use std::collections::BTreeMap;

use super::*;
use crate::{
    analysis::{analyse, suffices},
    comparison::{Better, CaseServer, LeftOut, Round, ServerCoverage},
};

const BLOCKS: usize = 8;

/// The servers `app` on base, thp and hugetlb, and `db` on base and hugetlb: the cost of an operation is
/// `cost(app, db)`, times a speed of the machine that differs from block to block.
fn comparison(cost: &dyn Fn(Backing, Backing) -> f64) -> Comparison {
    let hugetlb = Backing::Hugetlb(None);
    let mut arms = Vec::new();
    for app in [Backing::Base, Backing::Thp, hugetlb] {
        arms.extend([Backing::Base, hugetlb].map(|db| vec![("app".to_owned(), app), ("db".to_owned(), db)]));
    }
    let mut random = fastrand::Rng::with_seed(3);
    let mut rounds = Vec::new();
    for block in 0..BLOCKS {
        let speed = 1.0 + random.f64();
        for (arm, servers) in arms.iter().enumerate() {
            let value = cost(servers[0].1, servers[1].1) * speed * (1.0 + 0.01 * (random.f64() - 0.5));
            let covered = |server: &str, coverage| ServerCoverage { server: server.to_owned(), coverage };
            rounds.push(Round {
                case: 0,
                arm,
                block: Some(block),
                fell_back: None,
                figures: BTreeMap::from([("cpu_per_operation".to_owned(), value)]),
                turns: None,
                coverage: None,
                off_heap_coverage: None,
                server_coverage: vec![covered("app", Some(0.5)), covered("db", None)],
                huge_pages_left: None,
            });
        }
    }
    let server = |name: &str, workload: &str, command: &str| CaseServer {
        name: name.to_owned(),
        workload: workload.to_owned(),
        command: command.split(' ').map(str::to_owned).collect(),
    };
    Comparison {
        cases: vec![Case {
            workload: "java 25 + PostgreSQL".to_owned(),
            embedded: false,
            command: Vec::new(),
            servers: vec![
                server("app", "java 25", "java App"),
                server("db", "PostgreSQL", "postgres -D data"),
            ],
            driver: vec!["load".to_owned()],
            parameters: BTreeMap::new(),
            figures: vec![Figure {
                name: "cpu_per_operation".to_owned(),
                unit: "s".to_owned(),
                better: Better::Lower,
            }],
        }],
        rounds,
        ..Comparison::of_arms(arms.into_iter().map(ArmBacking::Servers).collect())
    }
}

/// thp of the app saves 20 %, hugetlb 30 %; hugetlb of the database 10 %.
fn independent(app: Backing, db: Backing) -> f64 {
    let of_app = match app {
        Backing::Base => 1.0,
        Backing::Thp => 0.8,
        _ => 0.7,
    };
    of_app * if db == Backing::Base { 1.0 } else { 0.9 }
}

fn effects(mut comparison: Comparison) -> Vec<Effect> {
    analyse(&mut comparison);
    comparison.effects
}

fn estimates(effects: &[Effect]) -> Vec<f64> {
    effects.iter().filter_map(|effect| effect.ratio).map(|ratio| ratio.estimate).collect()
}

fn near(values: &[f64], expected: &[f64]) -> bool {
    values.len() == expected.len() && values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.01)
}

#[test]
fn each_effect_is_found_although_all_vary_at_once() {
    let effects = effects(comparison(&independent));
    let names: Vec<String> = effects.iter().map(|of| format!("{}={}", of.server, of.backing)).collect();
    assert_eq!(names, ["app=thp", "app=hugetlb", "db=hugetlb"]);
    assert!(near(&estimates(&effects), &[0.8, 0.7, 0.9]), "{effects:#?}");
    for effect in &effects {
        assert_eq!((effect.verdict, effect.blocks), (Verdict::Faster, BLOCKS), "{effect:#?}");
        assert!(effect.ratio.is_some_and(|ratio| ratio.low < ratio.estimate && ratio.high < 1.0));
        assert_eq!(effect.figures.len(), 1);
    }
    let of_app: Vec<_> = effects[0].interactions.iter().filter_map(|of| of.ratio).collect();
    assert!(of_app.len() == 1 && of_app[0].low < 1.0 && of_app[0].high > 1.0, "{of_app:?}");
    assert!(effects[2].interactions.is_empty(), "each pair of servers once");
    let commands: Vec<&str> =
        effects.iter().flat_map(|of| &of.actions).filter_map(|action| action.command.as_deref()).collect();
    assert!(commands.contains(&"hugewise run --backing thp -- java App"), "{commands:?}");
    assert!(commands.contains(&"hugewise run --backing hugetlb -- postgres -D data"), "{commands:?}");
}

#[test]
fn an_interaction_is_the_quotient_of_two_effects() -> Result<(), String> {
    // thp of the app gains only while the database is on base.
    let effects = effects(comparison(&|app, db| match (app, db) {
        (Backing::Thp, Backing::Base) => 0.8,
        _ => 1.0,
    }));
    let mean = 0.8_f64.sqrt();
    let [thp, hugetlb, db] = &effects[..] else {
        return Err(format!("three effects were expected: {effects:#?}"));
    };
    assert!(near(&estimates(std::slice::from_ref(thp)), &[mean]), "the geometric mean: {thp:#?}");
    let [interaction] = &thp.interactions[..] else {
        return Err(format!("one was expected: {thp:#?}"));
    };
    assert_eq!((interaction.server.as_str(), interaction.backing), ("db", Backing::Hugetlb(None)));
    assert!(interaction.ratio.is_some_and(|ratio| (ratio.estimate - 1.25).abs() < 0.02 && ratio.low > 1.1));
    assert_eq!(hugetlb.verdict, Verdict::NoDifference, "{hugetlb:#?}");
    // A third of its pairs is 25 % slower.
    assert!(near(&estimates(std::slice::from_ref(db)), &[1.25_f64.powf(1.0 / 3.0)]), "{db:#?}");
    Ok(())
}

#[test]
fn blocks_end_when_the_effects_are_decided() {
    let mut made = comparison(&independent);
    assert!(suffices(&made, 0));
    made.rounds.retain(|round| round.block.is_some_and(|block| block < 4));
    assert!(!suffices(&made, 0), "too few blocks");
}

#[test]
fn combinations_without_their_pages_do_not_count() {
    let mut made = comparison(&independent);
    // The app does not get its pages of a pool if the database has some.
    for round in made.rounds.iter_mut().filter(|round| round.arm == 5) {
        round.fell_back = Some("app: the pool was empty".to_owned());
    }
    let of = effects(made);
    assert!(near(&estimates(&of), &[0.8, 0.7, 0.9]), "{of:#?}");
    let detail = of[1].reason.clone().unwrap_or_default();
    assert!(detail.contains("from 1 of 2 combinations"), "{detail}");

    let mut none = comparison(&independent);
    for round in none.rounds.iter_mut().filter(|round| round.arm >= 4) {
        round.fell_back = Some("app: the pool was empty".to_owned());
    }
    let of = effects(none);
    assert_eq!(of[1].verdict, Verdict::FellBack, "{of:#?}");
    assert!(of[1].reason.as_ref().is_some_and(|reason| reason.contains("the pool was empty")));
    assert_eq!(of[0].verdict, Verdict::Faster);
}

#[test]
fn a_backing_that_no_combination_has_is_skipped_with_its_reason() {
    let mut made = comparison(&independent);
    made.rounds.retain(|round| ![2, 3].contains(&round.arm));
    let skipped = |arm| LeftOut { case: 0, arm, reason: "app: no thp".to_owned() };
    made.left_out = vec![skipped(2), skipped(3)];
    let of = effects(made);
    assert_eq!((of[0].verdict, of[0].reason.as_deref()), (Verdict::LeftOut, Some("app: no thp")));
    assert!(near(&estimates(&of), &[0.7, 0.9]), "{of:#?}");
}

#[test]
fn a_block_without_one_of_its_rounds_does_not_count() {
    let mut made = comparison(&independent);
    made.rounds.retain(|round| (round.arm, round.block) != (2, Some(0)));
    let blocks: Vec<usize> = effects(made).iter().map(|effect| effect.blocks).collect();
    assert_eq!(blocks, [BLOCKS - 1, BLOCKS, BLOCKS - 1]);
}

#[test]
fn the_coverage_of_each_server_is_that_of_its_rounds() {
    let mut made = comparison(&independent);
    analyse(&mut made);
    let covered: Vec<_> =
        made.backings[3].server_coverage.iter().map(|of| (of.server.as_str(), of.coverage)).collect();
    assert_eq!(covered, [("app", Some(0.5)), ("db", None)]);
    assert_eq!(made.backings[3].backing.to_string(), "app=thp db=hugetlb");
    assert!(made.backings.iter().all(|row| row.actions.is_empty()), "the effects have the actions");
}
