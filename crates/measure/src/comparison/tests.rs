//! JSON of a comparison.

use std::error::Error;

use serde_json::{Value, json};

use super::*;
use crate::analysis::analyse;

fn sample() -> Result<Comparison, serde_json::Error> {
    let round = |arm: usize, block: Option<usize>, wall: f64, fell_back: Option<&str>| {
        json!({"case": 0, "arm": arm, "block": block, "fell_back": fell_back,
               "figures": {"wall": wall}, "coverage": 0.5})
    };
    let mut rounds = vec![round(0, None, 9.0, None), round(1, Some(9), 9.0, Some("the pool was empty"))];
    for block in 0..5 {
        rounds.push(round(0, Some(block), 10.0 + 0.1 * block as f64, None));
        rounds.push(round(1, Some(block), 8.0 + 0.1 * block as f64, None));
    }
    let mut comparison: Comparison = serde_json::from_value(json!({
        "schema": "hugewise.compare/2",
        "version": "0.1.0",
        "started_unix_seconds": 1_795_000_000,
        "machine": {"kernel": "6.12.0", "architecture": "x86_64", "cpu": null, "cpus": 2, "memory_bytes": 8 << 30},
        "design": {"arms": ["base", "hugetlb:2MiB", "shm"], "rounds": 5, "warm_up": 1, "seed": 1, "aa": false},
        "cases": [{
            "workload": "java",
            "command": ["java", "-version"],
            "parameters": {"heap": "1g"},
            "figures": [{"name": "wall", "unit": "s", "better": "lower"}],
        }],
        "left_out": [{"case": 0, "arm": 2, "reason": "no pool"}],
        "backings": [],
        "rounds": rounds,
        "changes": ["a pool"],
        "notes": ["a note"],
    }))?;
    analyse(&mut comparison);
    Ok(comparison)
}

#[test]
fn a_comparison_survives_json() -> Result<(), Box<dyn Error>> {
    let sample = sample()?;
    assert_eq!(sample.backings.len(), 3);
    let text = serde_json::to_string(&sample)?;
    let back: Comparison = serde_json::from_str(&text)?;
    assert_eq!(back.backings, sample.backings);
    assert_eq!(serde_json::to_string(&back)?, text);
    Ok(())
}

#[test]
fn the_rows_keep_their_contract() -> Result<(), Box<dyn Error>> {
    let json = serde_json::to_value(sample()?)?;
    let verdicts: Vec<&Value> =
        json["backings"].as_array().into_iter().flatten().map(|b| &b["verdict"]).collect();
    assert_eq!(verdicts, ["base", "faster", "left_out"]);
    let row = &json["backings"][1];
    assert_eq!(row["backing"], "hugetlb:2MiB");
    for end in ["estimate", "low", "high"] {
        assert!(row["ratio"][end].is_f64(), "{row}");
    }
    assert!(row["coverage"].is_f64() && row["rounds"].is_u64() && row["detail"].is_string(), "{row}");
    Ok(())
}
