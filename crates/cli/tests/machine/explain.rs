//! `explain` and `plan` propose the same pool for every message about one, and the JVM starts with it. Collectors take
//! turns on the JVMs; every collector runs on every JVM only in a full run.

use std::{
    error::Error,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::Trial;
use serde_json::Value;

use crate::{
    TestResult,
    needs::Need::{Java, Pool, Root},
    plan::{COLLECTORS, UNLOCK, compiled, javas, knows},
    represents,
    start::{hugewise, run},
    trial,
};

/// Pages that no collector gets along with, and with which each prints a message.
const SHORT_POOLS: [&str; 2] = ["2MiB=0", "2MiB=60"];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let javas = javas();
    for (j, java) in javas.iter().enumerate() {
        let known = COLLECTORS.into_iter().enumerate().filter(|(_, collector)| knows(java, collector));
        for (c, collector) in known {
            for pool in SHORT_POOLS {
                let (java, name) =
                    (java.clone(), format!("explain: {} {collector} with {pool}", java.display()));
                let started =
                    trial(&name, &[Root, Pool, Java], move || starts_as_printed(&java, collector, pool));
                trials.push(started.representing(represents(j, javas.len(), c)));
            }
        }
    }
    trials
}

/// Undoes what the test applied, also if the test fails.
struct Undo;

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = run(&["restore", "--force"]);
    }
}

/// With a pool of `short`, the JVM prints a message; with the pool that `explain` and `plan` print, it starts.
fn starts_as_printed(java: &Path, collector: &str, short: &str) -> TestResult {
    let folder = compiled()?;
    let (java, class) = (java.to_str().ok_or("not UTF-8")?, folder.path().to_str().ok_or("not UTF-8")?);
    let collector = format!("-XX:+{collector}");
    let line = [java, UNLOCK, "-XX:+UseLargePages", &collector, "-Xms200m", "-Xmx200m", "-cp", class, "Stay"];
    let _undo = Undo;
    run(&["apply", "--pool", short, "--force"])?.ended_with(0)?;
    let log = folder.path().join("log");
    fs::write(&log, output(&line)?.0)?;
    let log = log.to_str().ok_or("not UTF-8")?;
    let explained = json(&[&["explain", "--json", log, "--"][..], &line].concat())?;
    let planned = json(&[&["plan", "--json", "--"][..], &line].concat())?;
    let about_pool = messages_about_pool(&explained)?;
    if about_pool.is_empty() {
        return Err(format!("no message about the pool of {short}: {explained:#}").into());
    }
    for message in about_pool {
        assert_eq!(message["actions"], planned["actions"], "{message:#}");
    }
    // Without the command line, no figure is known.
    for message in messages_about_pool(&json(&["explain", "--json", log])?)? {
        let command = message["actions"][0]["command"].as_str();
        assert_eq!(command, Some("sudo hugewise apply -- COMMAND"), "{message:#}");
    }
    let grow = planned["actions"][0]["command"].as_str().ok_or("an action was expected")?;
    let grow = grow.strip_prefix("sudo hugewise ").ok_or_else(|| format!("another command: {grow}"))?;
    run(&grow.split(' ').collect::<Vec<_>>())?.ended_with(0)?;
    let (said, has_started) = output(&line)?;
    let text = String::from_utf8_lossy(&said).into_owned();
    if !has_started {
        return Err(format!("after '{grow}' the JVM does not start: {text}").into());
    }
    fs::write(log, said)?;
    run(&["explain", log])?.ended_with(0).map_err(|error| format!("after '{grow}': {error}"))?;
    Ok(())
}

fn messages_about_pool(explained: &Value) -> Result<Vec<Value>, Box<dyn Error>> {
    let is_about_pool = |message: &&Value| {
        let cause = message["cause"].as_str().unwrap_or_default();
        ["pool_empty", "pool_short", "heap_commit", "heap_lowered", "commit_failed"].contains(&cause)
    };
    let messages = explained["messages"].as_array().ok_or("no messages")?;
    Ok(messages.iter().filter(is_about_pool).cloned().collect())
}

/// Output of the program, which ends at once because its input is empty; and whether it succeeded.
fn output(line: &[&str]) -> Result<(Vec<u8>, bool), Box<dyn Error>> {
    let ran = Command::new(line[0]).args(&line[1..]).stdin(Stdio::null()).output()?;
    Ok(([ran.stdout, ran.stderr].concat(), ran.status.success()))
}

fn json(arguments: &[&str]) -> Result<Value, Box<dyn Error>> {
    let ran = hugewise(arguments).output()?;
    let error = || String::from_utf8_lossy(&ran.stderr).into_owned();
    serde_json::from_slice(&ran.stdout).map_err(|_| format!("no JSON: {}", error()).into())
}
