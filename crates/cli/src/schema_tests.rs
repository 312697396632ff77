//! The published schemas describe the output of `--json`.

use std::{env, error::Error, fs, path::Path};

use hugewise_evidence::process::Document;
use hugewise_plan::plan::Plan;
use schemars::{Schema, schema_for};

use crate::commands;

/// Environment variable that makes the test write the schemas before it compares them.
const WRITE: &str = "HUGEWISE_WRITE_SCHEMA";

#[test]
fn the_published_schemas_are_those_of_the_code() -> Result<(), Box<dyn Error>> {
    let schemas: Vec<(&str, Schema)> = vec![
        ("apply", schema_for!(commands::apply::text::Report)),
        ("check", schema_for!(commands::check::text::Report)),
        ("collapse", schema_for!(commands::collapse::result::Report)),
        ("explain", schema_for!(commands::explain::text::Report)),
        ("gclog", schema_for!(commands::gclog::json::Report)),
        ("inspect", schema_for!(Document)),
        ("plan", schema_for!(Plan)),
        ("pretouch", schema_for!(commands::bench::pretouch::result::Report)),
        ("record", schema_for!(commands::record::text::Report)),
        ("report", schema_for!(commands::report::json::Report)),
        ("recording", schema_for!(hugewise_record::recording::Line)),
        ("restore", schema_for!(commands::restore::Report)),
        ("run", schema_for!(commands::run::report::Report)),
        ("stall", schema_for!(commands::bench::stall::result::Report)),
        ("tlb", schema_for!(commands::bench::tlb::result::Report)),
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
