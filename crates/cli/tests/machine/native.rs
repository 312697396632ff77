//! The embedded workload on every backing.

use hugewise_measure::comparison::{Comparison, Round};
use serde_json::Value;

use crate::{
    TestResult, Trial, is_full,
    needs::Need::{GiantPool, Java, Pool, Root, Thp},
    skip,
    start::{INCONCLUSIVE, QUICK_RUN, covered, rounds, run},
    trial,
};

/// Rounds of a comparison: `full` in a full run, else one.
pub fn rounds_in_full_run(full: usize) -> usize {
    if is_full() { full } else { 1 }
}

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/compare.json");

pub fn trials() -> Vec<Trial> {
    vec![
        trial("native: each backing gets its pages", &[Root, Pool, Thp], each_backing_gets_its_pages),
        trial("embedded: the Java workload takes turns", &[Root, Thp, Java], embedded_java),
        trial("native: pages of 1 GiB", &[Root, GiantPool], giant_pages),
        trial("native: SysV shared memory", &[Root, Pool], shared_memory),
    ]
}

fn each_backing_gets_its_pages() -> TestResult {
    let count = rounds_in_full_run(2);
    let arguments = [
        "compare",
        "--json",
        "--no-java",
        "--bytes",
        "100000000",
        "--rounds",
        &count.to_string(),
        "--seed",
        "7",
    ];
    let ran = run(&arguments)?.ended_with(INCONCLUSIVE)?;
    let comparison = ran.comparison()?;
    assert_eq!((comparison.design.rounds, comparison.design.seed), (count, 7));
    assert_eq!(comparison.cases[0].workload, "native");
    for backing in ["thp", "hugetlb"] {
        covered(&comparison, backing, 0.95)?;
    }
    took_turns(&comparison)?;
    for round in rounds(&comparison, "base")? {
        assert!(round.coverage.is_some_and(|share| share <= 0.05), "{round:#?}");
    }
    for row in &comparison.backings {
        assert_eq!(row.rounds, count, "{row:#?}");
        for figure in ["time", "populate", "user", "peak_memory", "minor_faults"] {
            assert!(row.figures.iter().any(|f| f.name == figure && f.mean > 0.0), "{figure}: {row:#?}");
        }
    }
    documented(&serde_json::from_str(&ran.stdout)?)
}

/// In every block all arms are alive at once, on one CPU, and take the same number of turns.
pub fn took_turns(comparison: &Comparison) -> TestResult {
    assert!(comparison.design.turns);
    for round in &comparison.rounds {
        let turns = round.turns.as_ref().ok_or_else(|| format!("no turns: {round:?}"))?;
        let same_block = |other: &&Round| (other.case, other.block) == (round.case, round.block);
        for other in comparison.rounds.iter().filter(same_block) {
            let other = other.turns.as_ref().ok_or("no turns")?;
            assert_eq!((other.values.len(), other.cpu), (turns.values.len(), turns.cpu));
        }
        assert!(turns.values.len() >= 40 && turns.cpu.is_some(), "{turns:?}");
        assert!(turns.values.iter().all(|ns| *ns > 0.0), "{turns:?}");
    }
    Ok(())
}

/// The same reads in a JVM, whose memory is its heap.
fn embedded_java() -> TestResult {
    let arguments = ["compare", "--json", "--bytes", "100000000", "--rounds", "1", "--backing", "thp"];
    let comparison = run(&arguments)?.ended_with(INCONCLUSIVE)?.comparison()?;
    assert_eq!(comparison.cases.len(), 2, "{:#?}", comparison.notes);
    took_turns(&comparison)?;
    for round in comparison.rounds.iter().filter(|round| round.case == 1) {
        let expected = if round.arm == 0 { 0.0..0.05 } else { 0.95..1.01 };
        assert!(round.coverage.is_some_and(|share| expected.contains(&share)), "{round:?}");
        for figure in ["time", "heap_ready", "peak_memory"] {
            assert!(round.figures.get(figure).is_some_and(|value| *value > 0.0), "{figure}: {round:?}");
        }
    }
    Ok(())
}

/// All required fields of the published schema are present, at the top level and one level below.
fn documented(printed: &Value) -> TestResult {
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(SCHEMA)?)?;
    let required = |of: &Value| -> Vec<String> {
        let names = of["required"].as_array().into_iter().flatten();
        names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let top = required(&schema);
    assert!(top.len() > 5, "the schema requires fields");
    for field in &top {
        assert!(printed.get(field).is_some(), "{field} is promised and not printed");
    }
    for (field, definition) in
        [("machine", "Machine"), ("design", "Design"), ("rounds", "Round"), ("backings", "BackingResult")]
    {
        let inner = required(&schema["$defs"][definition]);
        assert!(!inner.is_empty(), "{definition} is in the schema");
        let value = &printed[field];
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        assert!(!values.is_empty(), "{field} is not empty");
        for (value, name) in values.iter().flat_map(|value| inner.iter().map(move |name| (value, name))) {
            assert!(value.get(name).is_some(), "{field}.{name} is promised and not printed: {value}");
        }
    }
    Ok(())
}

fn giant_pages() -> TestResult {
    let arguments = [&QUICK_RUN[..], &["--json", "-b", "hugetlb:1GiB"]].concat();
    let ran = run(&arguments)?;
    let comparison = ran.comparison()?;
    match comparison.left_out.first() {
        // Memory is free but not contiguous: the reason must say so.
        Some(out) => {
            assert!(out.reason.contains("not contiguous"), "{}", out.reason);
            return skip(format!("no page of 1GiB: {}", out.reason));
        }
        None => {
            covered(&comparison, "hugetlb:1GiB", 0.95)?;
            ran.ended_with(INCONCLUSIVE)?;
        }
    }
    Ok(())
}

fn shared_memory() -> TestResult {
    let ran = run(&[&QUICK_RUN[..], &["--json", "-b", "shm"]].concat())?.ended_with(INCONCLUSIVE)?;
    covered(&ran.comparison()?, "shm", 0.95)
}
