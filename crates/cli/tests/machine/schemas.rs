//! The JSON of every command conforms to its published schema: checked for all results that these tests see.

use std::{
    collections::BTreeSet,
    error::Error,
    fs,
    path::Path,
    process::{self, Command},
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

use crate::{
    TestResult, Trial,
    java::compiled,
    needs::{
        Need::{Free, Java, Root, Thp},
        jdks,
    },
    pretouch,
    start::{INCONCLUSIVE, QUICK_RUN, run},
    tlb, trial,
};

/// Names of the schemas that a result was checked against.
static CHECKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

const HELLO: &str = "public class Hello { public static void main(String[] a) { System.gc(); } }";

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Thp, Java, Free(2500)];
    vec![trial("schemas: the JSON of every command conforms to its own", &needs, every_command)]
}

/// Runs every command that has not yet been seen with `--json`.
fn every_command() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (recording, log, results) = (path("recording"), path("gc.log"), path("run.json"));
    let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
    let classes = compiled("Hello", HELLO)?;
    let classes = classes.path().display().to_string();
    let gc_log = format!("-Xlog:gc*,safepoint:file={log}");
    let line = [java.as_str(), "-Xmx64m", &gc_log, "-cp", &classes, "Hello"];
    let pid = process::id().to_string();
    let commands: [&[&str]; 17] = [
        &["check", "--json"],
        &["inspect", "--json", &pid],
        &["collapse", "--dry-run", "--json", &pid],
        &["split", "--dry-run", "--json", &pid],
        &["compare", "--live", &pid, "--dry-run", "--json"],
        &["apply", "--dry-run", "--json", "--pool", "2MiB=+1"],
        &["restore", "--json"],
        &[&pretouch::QUICK_RUN[..], &["--json"]].concat(),
        &[&tlb::QUICK_RUN[..], &["--json"]].concat(),
        &["bench", "stall", "--json", "--share", "--memory", "256MiB"],
        &[&QUICK_RUN[..], &["--json", "-b", "base,thp"]].concat(),
        &[&["plan", "--json", "--backing", "hugetlb", "--"], &line[..]].concat(),
        &[&["run", "--backing", "thp", "--report", &results, "--"], &line[..]].concat(),
        &[&["record", "--json", "-o", &recording, "--"], &line[..]].concat(),
        &["explain", "--json", &log],
        &["gclog", "--json", &log],
        &["report", "--json", &recording],
    ];
    for arguments in commands {
        let ran = run(arguments)?;
        let expected = [0, 1, INCONCLUSIVE];
        if ran.status.code().is_none_or(|code| !expected.contains(&code)) {
            return Err(format!("{arguments:?}: {ran:#?}").into());
        }
    }
    check_document(&fs::read_to_string(&results)?)?;
    let lines = String::from_utf8(Command::new("gzip").args(["-dc", &recording]).output()?.stdout)?;
    let (schema, mut seen) = (published("recording")?, 0);
    for line in lines.lines() {
        check(&serde_json::from_str(line)?, &schema, &schema, "recording")?;
        seen += 1;
    }
    assert!(seen > 1, "{lines}");
    let checked = CHECKED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let published: BTreeSet<String> = fs::read_dir(folder_of_schemas())?
        .map(|entry| Ok(entry?.path().file_stem().unwrap_or_default().to_string_lossy().into_owned()))
        .collect::<std::io::Result<_>>()?;
    let unchecked: Vec<&String> =
        published.difference(&checked).filter(|name| *name != "recording").collect();
    assert!(unchecked.is_empty(), "no result was checked against {unchecked:?}");
    Ok(())
}

/// Checks `output` against the schema that it names, if it is JSON that names one.
pub fn check_document(output: &str) -> TestResult {
    let Ok(document) = serde_json::from_str::<Value>(output) else { return Ok(()) };
    let Some(schema) = document["schema"].as_str() else { return Ok(()) };
    let name = schema.strip_prefix("hugewise.").and_then(|name| name.strip_suffix("/2"));
    let name = name.ok_or_else(|| format!("unexpected schema {schema}"))?;
    let root = published(name)?;
    check(&document, &root, &root, name)?;
    CHECKED.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
    Ok(())
}

fn folder_of_schemas() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema"))
}

fn published(name: &str) -> Result<Value, Box<dyn Error>> {
    let file = folder_of_schemas().join(format!("{name}.json"));
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(serde_json::from_str(&text)?)
}

/// Checks that every value has the type given by the schema, and every field is in the schema.
fn check(value: &Value, schema: &Value, root: &Value, place: &str) -> Result<(), String> {
    if let Some(definition) = definition(schema, root) {
        return check(value, &joined(schema, definition), root, place);
    }
    for choice in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let mut errors = Vec::new();
            for choice in choices {
                match check(value, &joined(schema, choice), root, place) {
                    Ok(()) => return Ok(()),
                    Err(error) => errors.push(error),
                }
            }
            // The choice that fits best fails at the longest path.
            let place_length = |error: &String| error.find(": ");
            return Err(errors.into_iter().max_by_key(place_length).unwrap_or_default());
        }
    }
    if let Some(constant) = schema.get("const") {
        return if value == constant { Ok(()) } else { Err(format!("{place}: {value} is not {constant}")) };
    }
    if let Some(words) = schema["enum"].as_array().filter(|words| !words.contains(value)) {
        return Err(format!("{place}: {value} is none of {words:?}"));
    }
    check_type(value, schema, place)?;
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(item, &schema["items"], root, &format!("{place}[{index}]"))?;
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
        let known = known.ok_or_else(|| format!("{place}.{name}: not in the schema"))?;
        check(field, known, root, &format!("{place}.{name}"))?;
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match required.into_iter().find(|name| value.get(name).is_none()) {
        Some(missing) => Err(format!("{place}.{missing}: missing")),
        None => Ok(()),
    }
}

fn definition<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    let name = schema["$ref"].as_str()?.strip_prefix("#/$defs/")?;
    Some(&root["$defs"][name])
}

/// A definition or a choice, with the properties that `schema` has beside it.
fn joined(schema: &Value, part: &Value) -> Value {
    let mut part = part.clone();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        part["properties"][name] = property.clone();
    }
    let required = [&part, schema].map(|of| of["required"].as_array().cloned().unwrap_or_default());
    if schema["properties"].is_object() {
        part["required"] = required.concat().into();
    }
    part
}

fn check_type(value: &Value, schema: &Value, place: &str) -> Result<(), String> {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_u64() || n.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types = match &schema["type"] {
        Value::Null => return Ok(()),
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    let fits = types.iter().any(|fit| fit == name || (fit == "number" && name == "integer"));
    if fits { Ok(()) } else { Err(format!("{place}: {value} is not {types:?}")) }
}
