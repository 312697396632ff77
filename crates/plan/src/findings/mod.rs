//! What stands in the way of huge pages on a machine, drawn from its facts only.

mod pools;
mod rights;
#[cfg(test)]
mod tests;
mod transparent;

use std::path::{Path, PathBuf};

use hugewise_jvm::jdks::Jdk;
use hugewise_linux::{facts::Facts, hugepages::pools::POOLS};
use schemars::JsonSchema;
use serde::Serialize;

/// How bad it is; the worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A program that uses huge pages here fails.
    Problem,
    /// It gets less than it should, or somebody pays for it.
    Warning,
    /// Good to know.
    Info,
}

/// What was read, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Evidence {
    /// The value.
    pub value: String,
    /// The file, as it is called on the machine.
    pub source: PathBuf,
}

/// One thing that stands in the way, or is good to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Its name, which never changes its meaning.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// From what it was drawn.
    pub evidence: Vec<Evidence>,
    /// What follows from it.
    pub consequence: String,
    /// The command that mends it, where one does.
    pub command: Option<String>,
}

/// All findings, the most severe first.
pub fn findings(facts: &Facts, jdks: &[Jdk]) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(missing(facts));
    found.extend(pools::findings(facts));
    found.extend(transparent::findings(facts, jdks));
    found.extend(rights::findings(facts));
    if jdks.is_empty() {
        found.push(Finding {
            id: "no-jdk",
            severity: Severity::Info,
            evidence: vec![evidence("no release file beside a bin/java", "/usr/lib/jvm")],
            consequence: "No JDK was found in the usual folders, JAVA_HOME or PATH: nothing that needs \
                          a java can run here."
                .to_owned(),
            command: None,
        });
    }
    found.sort_by_key(|finding| finding.severity);
    found
}

fn evidence(value: impl ToString, source: impl AsRef<Path>) -> Evidence {
    Evidence { value: value.to_string(), source: Path::new("/").join(source) }
}

/// The command that writes `value` into a file, which may have any name.
fn write(value: impl std::fmt::Display, file: impl AsRef<Path>) -> Option<String> {
    let file = Path::new("/").join(file);
    let name = file.to_str()?;
    let harmless = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    let name = if name.chars().all(harmless) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    };
    Some(format!("echo {value} | sudo tee {name}"))
}

/// Is there something that all the rest would be drawn from?
fn missing(facts: &Facts) -> Option<Finding> {
    facts.pools.reason()?;
    let (id, severity, consequence) = if facts.thp.enabled.known().is_some() {
        (
            "no-hugetlb",
            Severity::Info,
            "The kernel offers no hugetlb pools here: only transparent huge pages are possible.",
        )
    } else {
        (
            "no-sys",
            Severity::Warning,
            "The kernel's settings cannot be seen, as in a container without /sys: what is said here comes \
             from /proc alone. Mount /sys into it; read-only is enough.",
        )
    };
    Some(Finding {
        id,
        severity,
        evidence: vec![evidence("cannot be read", POOLS)],
        consequence: consequence.to_owned(),
        command: None,
    })
}
