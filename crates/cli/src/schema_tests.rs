//! The published schemas describe the output of `--json`, and follow one convention.

use std::{env, error::Error, fs, path::Path};

use hugewise_evidence::process::Document;
use hugewise_linux::json::schema;
use hugewise_plan::plan::Plan;
use schemars::Schema;
use serde_json::Value;

use crate::commands;

/// Environment variable that makes the test write the schemas before it compares them.
const WRITE_VARIABLE: &str = "HUGEWISE_WRITE_SCHEMA";

/// The only schema with nanoseconds: raw events.
const RECORDING: &str = "recording";

fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        ("apply", schema::<commands::apply::text::ApplyReport>()),
        ("check", schema::<commands::check::text::CheckReport>()),
        ("collapse", schema::<commands::collapse::result::CollapseReport>()),
        ("compare", schema::<hugewise_measure::comparison::Comparison>()),
        ("explain", schema::<commands::explain::text::ExplainReport>()),
        ("gclog", schema::<commands::gclog::json::GclogReport>()),
        ("inspect", schema::<Document>()),
        ("live-prediction", schema::<commands::compare::live::predict::LivePrediction>()),
        ("plan", schema::<Plan>()),
        ("pretouch", schema::<commands::bench::pretouch::result::PretouchReport>()),
        ("record", schema::<commands::record::text::RecordReport>()),
        ("report", schema::<commands::report::json::AttributionReport>()),
        (RECORDING, schema::<hugewise_record::recording::Line>()),
        ("restore", schema::<commands::restore::RestoreReport>()),
        ("run", schema::<commands::run::report::RunReport>()),
        ("split", schema::<commands::split::result::SplitReport>()),
        ("stall", schema::<commands::bench::stall::result::StallReport>()),
        ("tlb", schema::<commands::bench::tlb::result::TlbReport>()),
    ]
}

#[test]
fn the_published_schemas_are_those_of_the_code() -> Result<(), Box<dyn Error>> {
    for (name, schema) in schemas() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schema/{name}.json"));
        let now = serde_json::to_string_pretty(&schema)? + "\n";
        if env::var_os(WRITE_VARIABLE).is_some() {
            fs::write(&file, &now)?;
        }
        let published = fs::read_to_string(&file)?;
        assert!(
            published == now,
            "{} is stale: {WRITE_VARIABLE}=1 cargo test writes it anew",
            file.display()
        );
    }
    Ok(())
}

#[test]
fn all_schemas_follow_one_convention() -> Result<(), Box<dyn Error>> {
    let mut wrong = Vec::new();
    for (name, schema) in schemas() {
        let schema = serde_json::to_value(&schema)?;
        let mut convention = Convention { schema: name, definitions: &schema["$defs"], wrong: Vec::new() };
        convention.check_document(&schema);
        convention.check(name, &schema);
        wrong.extend(convention.wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The rules that all schemas follow: units, page sizes, and the objects of regions, verdicts and actions.
struct Convention<'a> {
    schema: &'a str,
    definitions: &'a Value,
    wrong: Vec<String>,
}

impl<'a> Convention<'a> {
    fn fail(&mut self, place: &str, problem: &str) {
        self.wrong.push(format!("{}: {place}: {problem}", self.schema));
    }

    /// Every document names its schema; one that judges has a verdict with its reason and actions.
    fn check_document(&mut self, schema: &Value) {
        let whole = schema.to_string();
        let name = "\"schema\":";
        if self.schema != RECORDING && !whole.contains(name) {
            self.fail("", "the document does not name its schema");
        }
        let properties = &schema["properties"];
        if !properties["verdict"].is_null()
            && (properties["detail"].is_null() || properties["actions"].is_null())
        {
            self.fail("verdict", "without detail and actions beside it");
        }
    }

    /// Checks all objects in `schema`.
    fn check(&mut self, place: &str, schema: &'a Value) {
        match schema {
            Value::Object(fields) => {
                let words = fields.get("enum").and_then(Value::as_array).into_iter().flatten();
                for word in words.chain(fields.get("const")) {
                    if word.as_str().is_some_and(|word| !is_snake_case(word)) {
                        self.fail(place, "a word of a list that is not in snake_case");
                    }
                }
                if let Some(Value::Object(properties)) = fields.get("properties") {
                    for (name, property) in properties {
                        self.check_property(&format!("{place}.{name}"), name, property);
                    }
                    let has = |name: &str| properties.contains_key(name);
                    let region = ["start", "end", "resident_bytes", "hugetlb_bytes", "reason"];
                    if has("bytes_by_page_size") && has("name") && !region.iter().all(|name| has(name)) {
                        self.fail(place, "a region without the fields of a region");
                    }
                }
                fields.iter().for_each(|(name, field)| self.check(&format!("{place}.{name}"), field));
            }
            Value::Array(elements) => elements.iter().for_each(|element| self.check(place, element)),
            _ => {}
        }
    }

    fn check_property(&mut self, place: &str, name: &str, property: &Value) {
        const KERNEL: [&str; 2] = ["scan_sleep_millisecs", "alloc_sleep_millisecs"];
        /// Statistics of a figure with a unit of its own, and quotients.
        const WITHOUT_UNIT: [&str; 11] = [
            "estimate", "figures", "high", "low", "max", "mean", "median", "min", "ratio", "speedup", "value",
        ];
        let ends = |endings: &[&str]| {
            endings.iter().any(|ending| name == *ending || name.ends_with(&format!("_{ending}")))
        };
        let units = ["s", "ms", "us", "kib", "mib", "gib", "kb", "mb", "gb", "percent", "millisecs", "unix"];
        let is_rate = name.starts_with("seconds_per_");
        if ends(&units) && !is_rate && !KERNEL.contains(&name) || ends(&["ns"]) && self.schema != RECORDING {
            self.fail(place, "a unit other than bytes, seconds or a ratio");
        }
        // `before` and `after` of collapse and split are amounts without the suffix.
        let is_amount =
            ends(&["bytes"]) || name == "bytes_by_page_size" || ["before", "after"].contains(&name);
        if refers_to(property, "Bytes") && !is_amount {
            self.fail(place, "an amount of memory whose name does not end in _bytes");
        }
        let is_size = ends(&["page_size_bytes", "page_sizes_bytes"]) || name == "bytes_by_page_size";
        if refers_to(property, "PageSize") && !is_size {
            self.fail(place, "a page size whose name does not end in page_size_bytes");
        }
        let is_number = property["type"] == "number"
            || property["type"].as_array().is_some_and(|types| types.contains(&"number".into()))
            || property["additionalProperties"]["type"] == "number";
        let has_unit = ends(&["seconds", "ratio", "coverage", "per_second"]) || is_rate;
        if is_number && !has_unit && !WITHOUT_UNIT.contains(&name) {
            self.fail(place, "a number without a unit");
        }
        if name == "verdict" && !self.is_enum(property) {
            self.fail(place, "a verdict that is not one of a list of words");
        }
        if name == "actions" && property["items"]["$ref"] != "#/$defs/Action" {
            self.fail(place, "actions that are not the shared object");
        }
    }

    fn is_enum(&self, property: &Value) -> bool {
        let name = property["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
        let definition = &self.definitions[name.unwrap_or_default()];
        let is_word = |one: &Value| one["const"].is_string() || one["enum"].is_array();
        definition["enum"].is_array()
            || definition["oneOf"].as_array().is_some_and(|all| all.iter().all(is_word))
    }
}

/// Whether `property` is of the type `definition`, or a list or map of it.
fn refers_to(property: &Value, definition: &str) -> bool {
    let path = format!("#/$defs/{definition}");
    match property {
        Value::Object(fields) => {
            fields.get("$ref").is_some_and(|reference| reference == path.as_str())
                || ["anyOf", "items", "additionalProperties"]
                    .iter()
                    .filter_map(|part| fields.get(*part))
                    .any(|part| refers_to(part, definition))
        }
        Value::Array(elements) => elements.iter().any(|element| refers_to(element, definition)),
        _ => false,
    }
}

fn is_snake_case(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
