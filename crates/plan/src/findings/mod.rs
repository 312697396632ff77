//! Obstacles to huge pages on a machine, decided from its facts only.

mod boot;
mod cgroup;
mod counters;
mod fragmentation;
mod memory;
mod pools;
mod rights;
#[cfg(test)]
mod tests;
mod thp;

use std::path::{Path, PathBuf};

use hugewise_jvm::jdks::Jdk;
use hugewise_linux::{
    action::Action,
    facts::Facts,
    hugepages::pools::{POOLS, Pool, folder},
    proc::meminfo::MEMINFO,
    shell,
};
use schemars::JsonSchema;
use serde::Serialize;

/// Severity of a finding; sorted from the most to the least severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A program that uses huge pages on this machine fails.
    Problem,
    /// A program gets fewer huge pages than possible, or other programs pay for them.
    Warning,
    /// Information without a need to act.
    Info,
}

/// A value that was read, and its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Evidence {
    /// Value as text.
    pub value: String,
    /// File of the value, as an absolute path on the machine.
    pub source: PathBuf,
}

/// An obstacle to huge pages, or information about them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Identifier; its meaning never changes.
    pub id: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Values that the finding is based on.
    pub evidence: Vec<Evidence>,
    /// Consequence for programs.
    pub detail: String,
    /// Changes that remove it; empty if no change does.
    pub actions: Vec<Action>,
}

/// All findings, the most severe first.
pub fn findings(facts: &Facts, jdks: &[Jdk]) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(missing(facts));
    found.extend(cgroup::findings(facts));
    found.extend(pools::findings(facts));
    found.extend(memory::findings(facts));
    found.extend(boot::findings(facts));
    found.extend(fragmentation::finding(facts));
    found.extend(thp::findings(facts, jdks));
    found.extend(rights::findings(facts));
    found.extend(counters::finding(facts));
    if jdks.is_empty() {
        found.push(Finding {
            id: "no-jdk",
            severity: Severity::Info,
            evidence: vec![evidence("no release file beside a bin/java", "/usr/lib/jvm")],
            detail: "No JDK was found in the usual directories, JAVA_HOME or PATH: workloads that \
                          need a java cannot run."
                .to_owned(),
            actions: Vec::new(),
        });
    }
    found.sort_by_key(|finding| finding.severity);
    found
}

fn evidence(value: impl ToString, source: impl AsRef<Path>) -> Evidence {
    Evidence { value: value.to_string(), source: Path::new("/").join(source) }
}

/// The action that writes `value` into a file; quotes the file name. None if the name is not UTF-8.
fn write(change: &str, value: impl std::fmt::Display, file: impl AsRef<Path>) -> Vec<Action> {
    let file = Path::new("/").join(file);
    let Some(name) = file.to_str() else { return Vec::new() };
    vec![Action::new(change).by(format!("echo {value} | sudo tee {}", shell::word(name)))]
}

/// Whether the readings that the other findings need are missing.
fn missing(facts: &Facts) -> Option<Finding> {
    facts.pools.reason()?;
    let (id, severity, detail) = if facts.thp.enabled.known().is_some() {
        (
            "no-hugetlb",
            Severity::Info,
            "The kernel has no hugetlb pools: only transparent huge pages are available.",
        )
    } else {
        (
            "no-sys",
            Severity::Warning,
            "The kernel's settings cannot be read, as in a container without /sys: the findings are based on \
             /proc only. Mount /sys into the container; read-only is sufficient.",
        )
    };
    Some(Finding {
        id,
        severity,
        evidence: vec![evidence("cannot be read", POOLS)],
        detail: detail.to_owned(),
        actions: Vec::new(),
    })
}

/// Source of a pool's counter: its own file, or /proc/meminfo if /sys is missing.
fn file_of(facts: &Facts, pool: &Pool, name: &str) -> PathBuf {
    match facts.pools.known() {
        Some(_) => folder(pool.page_size, None).join(name),
        None => PathBuf::from(MEMINFO),
    }
}
