//! `compare --live` and `split` in containers, without process_madvise(2), and against khugepaged.

use std::{error::Error, fs, process::Command};

use serde_json::Value;

use crate::{
    TestResult, Trial,
    apply::Undo,
    collapse::{json, start_target},
    live::{HEAP_MIB, compare, first_jdk, load, load_by, turns},
    needs::Need::{Free, Java, Namespaces, Root, Thp},
    program::compile,
    split::TARGET,
    start::{EndedProcess, hugewise, run, run_command, says},
    trial,
};

const FILTER: &str = include_str!("seccomp.c");

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Thp, Free(300)];
    let with = |more: &[_]| [&needs[..], more].concat();
    vec![
        trial("live: without process_madvise, as by seccomp or an old kernel", &needs, without_call),
        trial("live: in a user namespace", &with(&[Namespaces]), user_namespace),
        trial("live: a JVM in a container", &with(&[Java, Namespaces, Free(1500)]), container),
        trial("live: against khugepaged, with the THP mode always", &with(&[Java, Free(1500)]), khugepaged)
            .representing(false),
    ]
}

/// Runs hugewise after `before`, a command that executes its last arguments.
fn after(before: &[&str], arguments: &[&str]) -> Result<EndedProcess, Box<dyn Error>> {
    run_command(&|| {
        let inner = hugewise(arguments);
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).arg(inner.get_program()).args(inner.get_args());
        command
    })
}

fn without_call() -> TestResult {
    let folder = tempfile::tempdir()?;
    let filter = compile(folder.path(), "seccomp", FILTER)?;
    let (program, _) = start_target(TARGET, 8, |_| {})?;
    let pid = program.pid();
    for (error, reason) in [("38", "ENOSYS"), ("1", "EPERM")] {
        let filtered = |arguments: &[&str]| after(&[&filter, error], arguments);
        for command in [&["split", &pid][..], &["compare", "--live", &pid]] {
            says(&filtered(command)?.ended_with(2)?.stderr, &["process_madvise", reason])?;
        }
        let dry = filtered(&["compare", "--live", &pid, "--dry-run", "--json"])?.ended_with(0)?;
        let dry: Value = serde_json::from_str(&dry.stdout)?;
        says(dry["detail"].as_str().ok_or("no reason")?, &[reason])?;
        says(dry["unknown"]["to_huge_seconds"].as_str().ok_or("no reason")?, &["os error"])?;
    }
    program.ends_right()
}

/// The capabilities of a user namespace count in it only.
fn user_namespace() -> TestResult {
    let (program, _) = start_target(TARGET, 8, |_| {})?;
    for command in [&["split"][..], &["compare", "--live"]] {
        let outer = after(&["unshare", "-Ur"], &[command, &[&program.pid()]].concat())?.ended_with(2)?;
        says(&outer.stderr, &["CAP_SYS_PTRACE"])?;
        // A process of the same namespace can be read, but not changed.
        let script = "sleep 100 & \"$@\" $!; status=$?; kill $!; exit $status";
        let inner = after(&["unshare", "-Ur", "sh", "-c", script, "sh"], command)?.ended_with(2)?;
        says(&inner.stderr, &["EPERM", "CAP_SYS_NICE in the initial user namespace"])?;
    }
    program.ends_right()
}

/// A JVM with another process id and another /proc: its counters are found, and its heap is moved.
fn container() -> TestResult {
    let before = ["unshare", "-m", "-p", "-f", "--kill-child", "--mount-proc"];
    let (program, url) = load_by(&before, &first_jdk()?, "UseG1GC")?;
    let unshare = program.pid();
    let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"))?;
    let pid = children.trim();
    let compared = turns(pid, &url, 3)?;
    for round in compared["rounds"].as_array().ok_or("no rounds")? {
        assert!(round["fell_back"].is_null() && round["figures"]["gc_share"].is_number(), "{compared:#}");
    }
    program.ends_right()
}

/// Either the turns have their pages, or the report says who took them.
fn khugepaged() -> TestResult {
    let (program, url) = load(&first_jdk()?, "UseG1GC")?;
    let _undo = Undo;
    let settings = ["--thp-enabled", "always", "--khugepaged", "scan_sleep_millisecs=10"];
    let more = ["--khugepaged", "alloc_sleep_millisecs=10", "--khugepaged", "pages_to_scan=100000"];
    run(&[&["apply"][..], &settings, &more].concat())?.ended_with(0)?;
    let pid = program.pid();
    let compared = json(&run(&compare(&pid, &url, &["--rounds", "1"]))?)?;
    let rounds = compared["rounds"].as_array().ok_or("no rounds")?;
    assert_eq!(rounds.len(), 2, "{compared:#}");
    for round in rounds {
        let (coverage, fell_back) = (round["coverage"].as_f64().ok_or("no coverage")?, &round["fell_back"]);
        match (round["arm"].as_u64(), fell_back.as_str()) {
            (Some(0), Some(reason)) => says(reason, &["khugepaged"])?,
            (Some(0), None) => assert!(coverage <= 0.2, "{compared:#}"),
            _ => assert!(coverage >= 0.8, "{compared:#}"),
        }
    }
    eprintln!(
        "khugepaged: coverage of {HEAP_MIB} MiB: {:?}",
        rounds.iter().map(|round| (&round["arm"], &round["coverage"])).collect::<Vec<_>>()
    );
    program.ends_right()
}
