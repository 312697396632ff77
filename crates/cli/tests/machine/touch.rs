//! `bench touch`: JMH's format, and the note on missing hardware counters.

use serde_json::Value;

use crate::{
    TestResult, Trial,
    needs::Need::{Pool, Root, Thp},
    start::{run, says},
    trial,
};

const QUICK_RUN: [&str; 10] =
    ["bench", "touch", "--bytes", "1000000", "--forks", "1", "--iterations", "3", "--reads", "200000"];

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Pool, Thp];
    vec![
        trial("bench touch: a result in the format of JMH", &needs, a_result_of_jmh),
        trial("bench touch: a table, with a note on missing counters", &needs, a_table),
    ]
}

fn a_result_of_jmh() -> TestResult {
    let ran = run(&[&QUICK_RUN[..], &["--backing", "base,thp,hugetlb", "--json"]].concat())?.ended_with(0)?;
    let results: Vec<Value> = serde_json::from_str(&ran.stdout)?;
    let backing = |result: &Value| result["params"]["backing"].as_str().map(str::to_owned);
    let backings: Vec<_> = results.iter().filter_map(backing).collect();
    assert_eq!(backings, ["base", "thp", "hugetlb"]);
    for result in &results {
        assert_eq!(result["params"]["bytes"], "1000000", "params are text");
        assert_eq!((&result["mode"], &result["forks"]), (&"avgt".into(), &1.into()));
        let primary = &result["primaryMetric"];
        let score = primary["score"].as_f64().unwrap_or_default();
        let raw: Vec<Vec<f64>> = serde_json::from_value(primary["rawData"].clone())?;
        assert_eq!(raw.iter().map(Vec::len).collect::<Vec<_>>(), [3], "a fork of three iterations");
        let mean = raw[0].iter().sum::<f64>() / 3.0;
        assert!(score > 0.0 && (score - mean).abs() <= mean * 1e-9, "{score} is not the mean of {raw:?}");
        assert_eq!(primary["scoreUnit"], "ns/op");
        for key in ["scoreError", "scoreConfidence", "scorePercentiles"] {
            assert!(!primary[key].is_null(), "{key}");
        }
        let share = result["secondaryMetrics"]["coverage"]["score"].as_f64();
        let huge = result["params"]["backing"] != "base";
        let right = |share: f64| if huge { share >= 0.95 } else { share <= 0.05 };
        assert!(share.is_some_and(right), "coverage {share:?}: {result}");
    }
    Ok(())
}

fn a_table() -> TestResult {
    let ran = run(&[&QUICK_RUN[..], &["--backing", "base,thp"]].concat())?.ended_with(0)?;
    says(&ran.stdout, &["Benchmark", "base", "thp", "ns/op", "100 %", "dTLB-misses/op"])?;
    // A counter that cannot be read is `n/a`, never 0, and a note below gives the reason.
    if ran.stdout.contains("n/a") {
        says(&ran.stdout, &["Hardware counters (cycles, dTLB loads and misses, page walks): "])?;
    }
    Ok(())
}
