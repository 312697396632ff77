//! The published schemas say what `--json` prints.

use std::{env, error::Error, fs, path::Path};

use hugewise_kernel::journal::Restored;
use schemars::{Schema, schema_for};

use crate::{inspect::Document, report::check::Report};

/// Set this to write the schemas anew.
const WRITE: &str = "HUGEWISE_WRITE_SCHEMA";

#[test]
fn the_published_schemas_are_those_of_the_code() -> Result<(), Box<dyn Error>> {
    let schemas: [(&str, Schema); 3] = [
        ("check", schema_for!(Report)),
        ("restore", schema_for!(Restored)),
        ("inspect", schema_for!(Document)),
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
