//! Documents in JSON, checked against the published schema that they name.

use std::{
    collections::BTreeSet,
    error::Error,
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

use crate::TestResult;

/// Names of the schemas that a result was checked against.
static CHECKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

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

/// Names of the schemas that a result was checked against so far.
pub fn checked() -> BTreeSet<String> {
    CHECKED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The folder of the published schemas.
pub fn folder_of_schemas() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema"))
}

/// The published schema of this name.
pub fn published(name: &str) -> Result<Value, Box<dyn Error>> {
    let file = folder_of_schemas().join(format!("{name}.json"));
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(serde_json::from_str(&text)?)
}

/// Checks that every value has the type given by the schema, and every field is in the schema.
pub fn check(value: &Value, schema: &Value, root: &Value, place: &str) -> Result<(), String> {
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
