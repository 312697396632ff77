//! `compare --live` and `split` in containers, without process_madvise(2), and against khugepaged.

use std::{error::Error, fs, process::Command};

use serde_json::Value;

use crate::{
    TestResult, Trial,
    apply::Undo,
    collapse::{json, start_target},
    compiling::compile,
    live::{compare, first_jdk, load, load_by, turns},
    needs::Need::{Free, Java, Namespaces, Root, Thp},
    skip,
    split::TARGET,
    start::{EndedProcess, hugewise, run, run_command, says},
    trial,
};

const FILTER: &str = include_str!("seccomp.c");

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Thp, Free(300)];
    let with = |more: &[_]| [&needs[..], more].concat();
    let alive = with(&[Java, Free(1500)]);
    vec![
        trial("live: without process_madvise, as by seccomp or an old kernel", &needs, without_call),
        trial("live: in a user namespace", &with(&[Namespaces]), user_namespace),
        trial("live: a JVM in a container", &[&alive[..], &[Namespaces]].concat(), container)
            .representing(false),
        trial("live: against khugepaged, with the THP mode always", &alive, khugepaged).representing(false),
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
    let compared = turns(pid, &url, 1)?;
    for round in compared["rounds"].as_array().ok_or("no rounds")? {
        assert!(round["fell_back"].is_null() && round["figures"]["gc_share"].is_number(), "{compared:#}");
    }
    program.ends_right()
}

/// khugepaged collapses the memory during the turns on base pages: they do not count, and the report says why.
fn khugepaged() -> TestResult {
    let _undo = Undo;
    let settings = ["scan_sleep_millisecs=0", "alloc_sleep_millisecs=0", "pages_to_scan=1000000"];
    let settings = settings.iter().flat_map(|setting| ["--khugepaged", setting]);
    // Before the start: the kernel adds a process to khugepaged's list when it maps or populates memory.
    let apply: Vec<&str> = ["apply", "--thp-enabled", "always"].into_iter().chain(settings).collect();
    run(&apply)?.ended_with(0)?;
    let _prompt = PromptKhugepaged::new()?;
    let (program, url) = load(&first_jdk()?, "UseG1GC")?;
    let pid = program.pid();
    let collapsed_before = pages_collapsed()?;
    let ran = run(&compare(&pid, &url, &["--rounds", "1"]))?;
    let collapsed = pages_collapsed()? - collapsed_before;
    let compared = json(&ran)?;
    let rounds = compared["rounds"].as_array().ok_or("no rounds")?;
    assert_eq!(rounds.len(), 2, "{compared:#}");
    let (on_base, on_huge): (Vec<&Value>, Vec<&Value>) = rounds.iter().partition(|round| round["arm"] == 0);
    let coverage = |round: &Value| round["coverage"].as_f64().unwrap_or(-1.0);
    assert!(
        on_huge.iter().all(|round| coverage(round) >= 0.8 && round["fell_back"].is_null()),
        "{compared:#}"
    );
    for round in &on_base {
        assert_eq!(coverage(round) > 0.2, round["fell_back"].is_string(), "{compared:#}");
    }
    let shares: Vec<f64> = on_base.iter().map(|round| coverage(round)).collect();
    eprintln!("khugepaged collapsed {collapsed} huge pages; coverage of the turns on base pages: {shares:?}");
    let fallen_back: Vec<&str> = on_base.iter().filter_map(|round| round["fell_back"].as_str()).collect();
    if fallen_back.len() < on_base.len() {
        return skip(format!("khugepaged collapsed {collapsed} huge pages: too few in a turn, {shares:?}"));
    }
    for reason in fallen_back {
        says(reason, &["of the memory was on huge pages", "khugepaged"])?;
    }
    ran.ended_with(1)?;
    let [base, thp] = [&compared["backings"][0], &compared["backings"][1]];
    assert_eq!(
        (&base["verdict"], &thp["verdict"]),
        (&"fell_back".into(), &"inconclusive".into()),
        "{compared:#}"
    );
    says(thp["detail"].as_str().unwrap_or_default(), &["khugepaged"])?;
    // The action helps.
    let action = thp["actions"][0]["command"].as_str().unwrap_or_default();
    let words: Vec<&str> = action.strip_prefix("sudo hugewise ").ok_or(action)?.split(' ').collect();
    run(&words)?.ended_with(0)?;
    let compared = json(&run(&compare(&pid, &url, &["--rounds", "1"]))?)?;
    let rounds = compared["rounds"].as_array().ok_or("no rounds")?;
    assert!(rounds.len() == 2 && rounds.iter().all(|round| round["fell_back"].is_null()), "{compared:#}");
    program.ends_right()
}

/// khugepaged has the lowest priority, with which it does not run while the CPUs are busy; this gives it a higher
/// one, until it is dropped.
struct PromptKhugepaged(String);

const LOWEST_PRIORITY: &str = "19";

impl PromptKhugepaged {
    fn new() -> Result<PromptKhugepaged, Box<dyn Error>> {
        let found = Command::new("pgrep").args(["-x", "khugepaged"]).output()?;
        let prompt = PromptKhugepaged(String::from_utf8(found.stdout)?.trim().to_owned());
        prompt.set("-5")?;
        Ok(prompt)
    }

    fn set(&self, priority: &str) -> TestResult {
        let set = Command::new("renice").args(["-n", priority, "-p", &self.0]).output()?;
        if set.status.success() {
            Ok(())
        } else {
            Err(format!("renice of khugepaged failed: {set:?}").into())
        }
    }
}

impl Drop for PromptKhugepaged {
    fn drop(&mut self) {
        let _ = self.set(LOWEST_PRIORITY);
    }
}

/// Huge pages that khugepaged collapsed since the machine started.
fn pages_collapsed() -> Result<u64, Box<dyn Error>> {
    let file = "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_collapsed";
    Ok(fs::read_to_string(file)?.trim().parse()?)
}
