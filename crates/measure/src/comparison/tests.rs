//! The published schema matches the JSON exactly.

use std::{env, error::Error, fs, path::Path};

use serde_json::{Value, json};

use super::*;
use crate::analysis::analyse;

/// Environment variable that makes the test write the schema.
const WRITE: &str = "HUGEWISE_WRITE_SCHEMA";

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
        "schema": "hugewise.compare/1",
        "version": "0.1.0",
        "started_unix_s": 1_795_000_000,
        "machine": {"kernel": "6.12.0", "architecture": "x86_64", "cpu": null, "cpus": 2, "memory": 8 << 30},
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
fn the_published_schema_is_the_one_of_the_code() -> Result<(), Box<dyn Error>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/compare.json");
    let now = serde_json::to_string_pretty(&schema())? + "\n";
    if env::var_os(WRITE).is_some() {
        fs::write(&file, &now)?;
    }
    let published = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        published == now,
        "docs/schema/compare.json is stale: run the tests with {WRITE}=1 and commit it"
    );
    Ok(())
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
    assert!(row["coverage"].is_f64() && row["rounds"].is_u64() && row["reason"].is_string(), "{row}");
    Ok(())
}

/// Checks that every value has the type given by the schema, and every field is in the schema.
fn check(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return check(value, &root["$defs"][name], root, at);
    }
    for choice in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let fits = choices.iter().any(|choice| check(value, choice, root, at).is_ok());
            return if fits { Ok(()) } else { Err(format!("{at}: {value} is none of {schema}")) };
        }
    }
    if let Some(constant) = schema.get("const") {
        return if value == constant { Ok(()) } else { Err(format!("{at}: {value} is not {constant}")) };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    if !kinds.iter().any(|k| k == kind || (k == "number" && kind == "integer")) {
        return Err(format!("{at}: {value} is not {kinds:?}"));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(item, &schema["items"], root, &format!("{at}[{index}]"))?;
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
        let known = known.ok_or_else(|| format!("{at}.{name} is not in the schema"))?;
        check(field, known, root, &format!("{at}.{name}"))?;
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match required.into_iter().find(|name| value.get(name).is_none()) {
        Some(missing) => Err(format!("{at}.{missing} is missing")),
        None => Ok(()),
    }
}

#[test]
fn a_comparison_is_what_the_schema_says() -> Result<(), Box<dyn Error>> {
    let root = serde_json::to_value(schema())?;
    let mut json = serde_json::to_value(sample()?)?;
    check(&json, &root, &root, "comparison")?;
    json["backings"][0]["verdict"] = json!("best");
    assert!(check(&json, &root, &root, "comparison").is_err(), "the check sees what is wrong");
    Ok(())
}
