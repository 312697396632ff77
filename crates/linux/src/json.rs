//! JSON of results, and its schemas: an unknown `Reading` is null, with its reason in the field `unknown` of
//! the same object.

use schemars::{JsonSchema, Schema, schema_for, transform};
use serde::{Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::reading::IS_READING;

/// Field with the reasons, by name of the field that is null; also the only field of an unknown [`Reading`].
///
/// [`Reading`]: crate::reading::Reading
const UNKNOWN: &str = "unknown";

/// Indented text, with a line break at its end.
pub fn text(result: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&value(result)?)? + "\n")
}

/// One line, with a line break at its end.
pub fn line(result: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string(&value(result)?)? + "\n")
}

pub fn value(result: &impl Serialize) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(result)?;
    for_each_object(&mut value, &mut collect_reasons);
    Ok(value)
}

/// Reads the JSON that [`value`] wrote.
pub fn read<T: DeserializeOwned>(mut value: Value) -> serde_json::Result<T> {
    for_each_object(&mut value, &mut distribute_reasons);
    serde_json::from_value(value)
}

/// Schema of the JSON that [`value`] writes.
pub fn schema<T: JsonSchema>() -> Schema {
    let mut schema = schema_for!(T);
    add_reasons(&mut schema);
    schema
}

/// Serialises nanoseconds as seconds.
#[allow(clippy::trivially_copy_pass_by_ref)] // Serde passes a reference.
pub fn ns_in_seconds<S: Serializer>(ns: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(ns / 1e9)
}

/// Calls `change` for each object in `value`, the innermost first.
fn for_each_object(value: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(|element| for_each_object(element, change)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| for_each_object(field, change));
            change(fields);
        }
        _ => {}
    }
}

fn collect_reasons(fields: &mut Map<String, Value>) {
    let mut reasons = Map::new();
    for (name, field) in fields.iter_mut() {
        if let Some(reason) = reason(field) {
            reasons.insert(name.clone(), reason);
            *field = Value::Null;
        }
    }
    if !reasons.is_empty() {
        fields.insert(UNKNOWN.to_owned(), Value::Object(reasons));
    }
}

/// The reason, if `value` is an unknown reading.
fn reason(value: &Value) -> Option<Value> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    fields.get(UNKNOWN).filter(|reason| reason.is_string()).cloned()
}

fn distribute_reasons(fields: &mut Map<String, Value>) {
    let Some(Value::Object(reasons)) = fields.get(UNKNOWN) else { return };
    let reasons = reasons.clone();
    fields.remove(UNKNOWN);
    for (name, reason) in reasons {
        fields.insert(name, json!({ UNKNOWN: reason }));
    }
}

/// Adds the property `unknown` to a schema of an object, or of a map, with readings.
fn add_reasons(schema: &mut Schema) {
    transform::transform_subschemas(&mut add_reasons, schema);
    let is_reading =
        |schema: &mut Value| schema.as_object_mut().is_some_and(|schema| schema.remove(IS_READING).is_some());
    let mut readings = schema.get_mut("additionalProperties").is_some_and(is_reading);
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        readings |= properties.values_mut().filter_map(|schema| is_reading(schema).then_some(())).count() > 0;
    }
    if readings {
        let properties = schema.ensure_object().entry("properties").or_insert_with(|| json!({}));
        properties[UNKNOWN] = json!({
            "description": "Reasons, by name of the field that is null because its value is unknown; absent if \
                            all values are known.",
            "type": "object",
            "additionalProperties": { "type": "string" },
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::reading::Reading;

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Outer {
        known: Reading<u64>,
        /// An amount.
        missing_bytes: Reading<u64>,
        inner: Vec<Inner>,
        sources: BTreeMap<String, Reading<String>>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Inner {
        limit: Reading<Option<u64>>,
    }

    fn outer() -> Outer {
        Outer {
            known: Reading::Known(1),
            missing_bytes: Reading::unknown("no file"),
            inner: vec![
                Inner { limit: Reading::Known(None) },
                Inner { limit: Reading::unknown("not allowed") },
            ],
            sources: [("a".to_owned(), Reading::unknown("off"))].into(),
        }
    }

    #[test]
    fn an_unknown_value_is_null_with_its_reason_beside_it() -> serde_json::Result<()> {
        let value = value(&outer())?;
        let expected = json!({
            "known": 1, "missing_bytes": null, "unknown": {"missing_bytes": "no file"},
            "inner": [{"limit": null}, {"limit": null, "unknown": {"limit": "not allowed"}}],
            "sources": {"a": null, "unknown": {"a": "off"}},
        });
        assert_eq!(value, expected);
        assert_eq!(read::<Outer>(value)?, outer());
        Ok(())
    }

    #[test]
    fn the_schema_allows_null_and_lists_the_reasons() -> serde_json::Result<()> {
        let schema = serde_json::to_value(schema::<Outer>())?;
        assert_eq!(schema["properties"]["missing_bytes"]["type"], json!(["integer", "null"]));
        assert_eq!(schema["properties"]["unknown"]["additionalProperties"]["type"], "string");
        assert_eq!(schema["properties"]["sources"]["properties"]["unknown"]["type"], "object");
        assert!(schema["$defs"]["Inner"]["properties"]["unknown"].is_object(), "{schema}");
        assert!(!schema.to_string().contains(IS_READING), "{schema}");
        Ok(())
    }
}
