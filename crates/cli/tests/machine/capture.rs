//! `hugewise check --capture DIR --pid PID`: a JVM, also in other namespaces, is taken along without its secrets, and
//! commands answer from the capture.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    TestResult, Trial,
    needs::{
        Need::{Java, Root},
        jdks,
    },
    start::{run, says, wait_until},
    trial,
};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("capture: a JVM without its secrets", &[Root, Java], || captured(&[])),
        trial("capture: a JVM in other namespaces", &[Root, Java], || {
            captured(&["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "--"])
        }),
    ]
}

const WAIT: &str =
    "public class Wait { public static void main(String[] a) throws Exception { System.in.read(); } }";
const SECRET: &str = "hunter2hunter2";
const MESSAGE: &str = "[0.000s][warning][pagesize] UseLargePages disabled, no large pages configured and available on the system.";

/// The process that the child of a shell became, behind a wrapper that forks.
fn java_of(pid: u32) -> std::io::Result<Option<u32>> {
    let mut next = Some(pid);
    while let Some(pid) = next {
        if fs::read_to_string(format!("/proc/{pid}/maps"))?.contains("classes.jsa") {
            return Ok(Some(pid));
        }
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        next = children.split_whitespace().next().and_then(|child| child.parse().ok());
    }
    Ok(None)
}

fn captured(wrapper: &[&str]) -> TestResult {
    let jdk = jdks().first().cloned().ok_or("no JDK")?;
    let java = jdk.java.display().to_string();
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("Wait.java"), WAIT)?;
    let log = folder.path().join("app.log");
    fs::write(&log, format!("connecting with password={SECRET}\n{MESSAGE}\n"))?;
    let output = fs::OpenOptions::new().append(true).open(&log)?;
    let password = format!("-Ddb.password={SECRET}");
    let words = [
        wrapper,
        &[&java, "-Xms48m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:+AlwaysPreTouch", &password, "Wait.java"],
    ]
    .concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder.path()).env("DB_KEY", SECRET).env("MALLOC_ARENA_MAX", "2");
    let mut child = command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output).spawn()?;
    wait_until("the JVM runs", || Ok(java_of(child.id())?.is_some()))?;
    let pid = java_of(child.id())?.ok_or("no JVM")?.to_string();
    let capture = folder.path().join("capture");
    let answers = answers(&pid, &capture, &log);
    drop(child.stdin.take());
    child.wait()?;
    answers
}

fn answers(pid: &str, capture: &Path, log: &Path) -> TestResult {
    let dir = capture.to_str().ok_or("a path that is not UTF-8")?;
    // A finding on this machine is exit status 1.
    let taken = run(&["check", "--capture", dir, "--pid", pid])?;
    says(&taken.stderr, &["files copied to"])?;
    let holds =
        Command::new("grep").args(["--recursive", "--files-with-matches", "--text", SECRET, dir]).output()?;
    assert!(holds.stdout.is_empty(), "{}", String::from_utf8_lossy(&holds.stdout));
    says(
        &fs::read_to_string(capture.join("removed.txt"))?,
        &["environment: DB_KEY", "command line: the value in word"],
    )?;
    says(&fs::read_to_string(capture.join(format!("proc/{pid}/environ")))?, &["MALLOC_ARENA_MAX=2"])?;

    let inspected: Value = serde_json::from_str(&run(&["inspect", "--json", "--root", dir, pid])?.stdout)?;
    let heap = inspected["regions"].as_array().and_then(|regions| {
        regions.iter().find(|region| region["name"].as_str().is_some_and(|name| name.contains("heap")))
    });
    let resident = heap.and_then(|heap| heap["resident_bytes"].as_u64());
    assert!(resident.is_some_and(|bytes| bytes >= 48 << 20), "{inspected:#}");

    let log = capture.join(log.strip_prefix("/")?);
    let log = log.to_str().ok_or("a path that is not UTF-8")?;
    let explained: Value =
        serde_json::from_str(&run(&["explain", "--json", "--root", dir, log])?.ended_with(1)?.stdout)?;
    assert_eq!(explained["messages"][0]["cause"], "pool_empty", "{explained:#}");
    let evidence = explained["messages"][0]["evidence"].to_string();
    assert!(!evidence.contains("foreign"), "{evidence}");

    let planned = run(&["plan", "--root", dir, "--pid", pid])?;
    says(&planned.stderr, &["-Xmx96m", "-Ddb.password=REMOVED"])
}
