//! The JSON of every command conforms to its published schema: checked for all results that these tests see.

use std::{
    collections::BTreeSet,
    fs,
    process::{self, Command},
};

use crate::{
    TestResult, Trial,
    compiling::compiled,
    documents::{check, check_document, checked, folder_of_schemas, published},
    needs::{
        Need::{Free, Java, Root, Thp},
        jdks,
    },
    pretouch,
    start::{INCONCLUSIVE, QUICK_RUN, run},
    tlb, trial,
};

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
    let checked = checked();
    let published: BTreeSet<String> = fs::read_dir(folder_of_schemas())?
        .map(|entry| Ok(entry?.path().file_stem().unwrap_or_default().to_string_lossy().into_owned()))
        .collect::<std::io::Result<_>>()?;
    let unchecked: Vec<&String> =
        published.difference(&checked).filter(|name| *name != "recording").collect();
    assert!(unchecked.is_empty(), "no result was checked against {unchecked:?}");
    Ok(())
}
