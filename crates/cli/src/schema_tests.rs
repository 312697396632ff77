//! The published schemas say what `--json` prints.

use std::{env, error::Error, fs, path::Path};

use hugewise_jvm::plan::Plan;
use schemars::{Schema, schema_for};

use crate::{commands::restore, inspect::Document, report};

/// Set this to write the schemas anew.
const WRITE: &str = "HUGEWISE_WRITE_SCHEMA";

#[test]
fn the_published_schemas_are_those_of_the_code() -> Result<(), Box<dyn Error>> {
    let schemas: Vec<(&str, Schema)> = vec![
        ("apply", schema_for!(report::apply::Report)),
        ("check", schema_for!(report::check::Report)),
        ("collapse", schema_for!(report::collapse::Report)),
        ("explain", schema_for!(report::explain::Report)),
        ("gclog", schema_for!(report::gclog::Report)),
        ("inspect", schema_for!(Document)),
        ("plan", schema_for!(Plan)),
        ("pretouch", schema_for!(report::pretouch::Report)),
        ("record", schema_for!(report::record::Report)),
        ("report", schema_for!(report::pauses::Report)),
        ("recording", schema_for!(hugewise_measure::recording::Line)),
        ("restore", schema_for!(restore::Report)),
        ("run", schema_for!(crate::launching::report::Report)),
        ("stall", schema_for!(report::stall::Report)),
        ("tlb", schema_for!(report::tlb::Report)),
    ];
    for (name, schema) in schemas {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schema/{name}.json"));
        let now = serde_json::to_string_pretty(&schema)? + "\n";
        if env::var_os(WRITE).is_some() {
            fs::write(&file, &now)?;
        }
        let published = fs::read_to_string(&file)?;
        assert!(published == now, "{} is stale: {WRITE}=1 cargo test writes it anew", file.display());
    }
    Ok(())
}
