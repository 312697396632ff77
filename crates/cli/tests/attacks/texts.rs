//! Control sequences in what is read: names of files, groups and units, logs, recordings, plans, pages of metrics.

use std::{fs, io::Write, process::Command};

use crate::{
    TestResult, Trial, attack,
    bounded::{COMPARED, ends_within},
    hostile::Place,
    memory_group::Group,
    needs::Need::{MemoryGroup, Thp},
    reading::each,
    start::{hugewise, program},
    terminals::{NAME, of_hugewise, plain},
    waiting::metrics,
};

pub fn trials() -> Vec<Trial> {
    vec![
        attack("texts: names of files, units and folders", &[], names).representing(false),
        attack("texts: logs with control sequences", &[], logs),
        attack("texts: recordings and plans with control sequences", &[], documents),
        attack("texts: the name of a control group", &[MemoryGroup], group).representing(false),
        attack("texts: pages and commands of metrics", &[Thp], sources),
        attack("texts: progress on a terminal", &[Thp], progress).representing(false),
    ]
}

fn names() -> TestResult {
    let place = Place::new()?;
    let (missing, present) = (place.text(&format!("missing {NAME}")), place.text(&format!("present {NAME}")));
    fs::write(&present, "")?;
    let unit = format!("{NAME}.service");
    let container = format!("docker-{NAME}");
    let mut results = Vec::new();
    for file in [&missing, &present] {
        results.extend([
            plain(&["gclog", file]),
            plain(&["explain", file]),
            plain(&["report", file]),
            plain(&["apply", "--plan", file]),
            plain(&["check", "--root", file]),
            plain(&["check", "--capture", file]),
            plain(&["plan", "--backing", "thp", "--", file, "-Xmx64m"]),
            plain(&["run", "--backing", "thp", "--", file]),
            plain(&["compare", "--rounds", "1", "--", file]),
            plain(&["record", "-o", &format!("{file}/x"), "--", "true"]),
            plain(&["record", "-o", &place.text(&format!("r{NAME}")), "--", file]),
            plain(&["report", "--html", &format!("{file}/x"), file]),
        ]);
    }
    for name in [&unit, &container, NAME] {
        results.extend(["inspect", "collapse", "split", "record"].map(|command| plain(&[command, name])));
    }
    results.extend([
        plain(&["run", "--unit", &unit]),
        plain(&["compare", "--server", &unit, "--ready", "80", "--rounds", "1", "--", "true"]),
        plain(&["compare", "--server", "true", "--user", NAME, "--ready", "x", "--", "true"]),
        plain(&["inspect", "--cgroup", &format!("/sys/fs/cgroup/{NAME}")]),
        plain(&["apply", "--pool", NAME]),
        plain(&["compare", "--metric", &format!("{NAME}=("), "--", "true"]),
        plain(&[
            "compare",
            "--metric",
            &format!("{NAME}/s=prom:{NAME}"),
            "--rounds",
            "1",
            "-b",
            "base",
            "--",
            "true",
        ]),
        plain(&[NAME]),
    ]);
    each(results.into_iter())
}

fn logs() -> TestResult {
    let place = Place::new()?;
    let gc = format!(
        "[0.001s][info][gc] Using {NAME}\n[1.0s][info][gc] GC(0) Pause Young (Normal) ({NAME}) 20M->10M(64M) 3.000ms\n\
         [2.0s][info][gc] GC(1) Pause {NAME} (System.gc()) 20M->10M(64M) 5.000ms\n\
         [2.1s][warning][pagesize] {NAME} Failed to reserve and commit memory using large pages. req_addr: {NAME}\n"
    );
    let crash = format!(
        "#\n# There is insufficient memory for the Java Runtime Environment to continue.\n# {NAME}\n\
         # Native memory allocation (mmap) failed to map 100 bytes for {NAME}\n\
         OpenJDK 64-Bit Server VM warning: Failed to reserve large pages memory req_addr: {NAME} bytes: 2 (errno = 12)\n\
         java: {NAME}: page allocation failure: order:9, mode:0x1, {NAME}\n\
         FATAL:  could not map anonymous shared memory: {NAME}\n\
         Host: {NAME}\nCommand Line: -Xmx1g -XX:+UseLargePages {NAME}\n"
    );
    let mut results = Vec::new();
    for (name, text) in [("gc.log", gc), ("hs_err.log", crash)] {
        let file = place.text(name);
        fs::write(&file, &text)?;
        results.extend([
            plain(&["gclog", &file]),
            plain(&["gclog", "--openmetrics", &file]),
            plain(&["explain", &file]),
            plain(&["explain", "--text", &text]),
        ]);
    }
    each(results.into_iter())
}

fn documents() -> TestResult {
    let place = Place::new()?;
    let plans = [
        format!(r#"{{"schema": "hugewise.plan/2", "verdict": "{NAME}"}}"#),
        format!(r#"{{"schema": "{NAME}", "{NAME}": "{NAME}"}}"#),
        format!("{NAME} no JSON"),
    ]
    .map(|text| text.replace('\u{1b}', "\\u001b").replace('\u{7}', "\\u0007"));
    let mut results = Vec::new();
    for (number, text) in plans.iter().enumerate() {
        let file = place.text(&format!("plan-{number}"));
        fs::write(&file, text)?;
        results.push(plain(&["apply", "--dry-run", "--plan", &file]));
        results.push(plain(&["report", &file]));
    }
    // A recording whose texts were changed on its way.
    let (recording, changed) = (place.text("recording"), place.text("changed"));
    let mut record = hugewise(&["record", "-o", &recording, "--", "sh", "-c", "sleep 0.3", "PLACEHOLDER"]);
    ends_within(COMPARED, &mut record)?.ended_with(0)?;
    let script = "gzip -dc \"$0\" | sed \"s/PLACEHOLDER/$2/g; s/\\\"sh\\\"/\\\"$2\\\"/g; s/madvise/$2/g\" | gzip > \"$1\"";
    let escaped = NAME.replace('\u{1b}', "\\\\u001b").replace('\u{7}', "\\\\u0007");
    let done = Command::new("sh").args(["-c", script, &recording, &changed, &escaped]).status()?;
    assert!(done.success());
    results.push(plain(&["report", &changed]));
    each(results.into_iter())
}

fn group() -> TestResult {
    let group = Group::make()?;
    let inner = group.0.join(format!("{NAME}.service"));
    fs::create_dir(&inner)?;
    let place = Place::new()?;
    let hostile = place.hostile("memory", &["1"])?;
    fs::write(inner.join("cgroup.procs"), hostile.pid())?;
    let path = inner.display().to_string();
    let outcome = each(
        [
            &["inspect", &hostile.pid()][..],
            &["inspect", "--cgroup", &path],
            &["inspect", &path],
            &["collapse", "--dry-run", &path],
            &["record", "--seconds", "1", "-o", &place.text("recording"), &path],
            &["inspect", &format!("{NAME}.service")],
        ]
        .iter()
        .map(|arguments| plain(arguments)),
    );
    drop(hostile);
    crate::start::wait_until("a group is empty", || Ok(fs::remove_dir(&inner).is_ok()))?;
    outcome
}

fn sources() -> TestResult {
    let place = Place::new()?;
    let hostile = place.hostile("memory", &["16"])?;
    let pid = hostile.pid();
    let refusing = metrics(0, |mut client| drop(write!(client, "HTTP/1.0 500 {NAME}\r\n\r\n{NAME}\n")))?;
    let text =
        metrics(0, |mut client| drop(write!(client, "HTTP/1.0 200 OK\r\n\r\nx_total {NAME}\n{NAME} 1\n")))?;
    let failing =
        place.script("failing", &format!("#!/bin/sh\necho '{NAME}' >&2; echo 'x_total {NAME}'; exit 3\n"))?;
    let live = ["compare", "--live", &pid, "--turn", "1", "--max-time", "3", "--metric", "x/s=prom:x_total"];
    each(
        [["--metric-url", &refusing], ["--metric-url", &text], ["--metric-command", &failing]]
            .iter()
            .map(|source| plain(&[&live[..], source].concat())),
    )
}

fn progress() -> TestResult {
    let place = Place::new()?;
    let hostile = place.hostile("named", &[NAME])?;
    let (pid, recording) = (hostile.pid(), place.text("recording"));
    each(
        [
            &["record", "--seconds", "1", "-o", &recording, &pid][..],
            &["compare", "--live", &pid, "--region", "all", "--turn", "1", "--max-time", "3"],
            &["collapse", &pid],
            &["inspect", &pid],
            &["plan", "--pid", &pid],
            &["run", "--backing", "thp", "--", &format!("/nonexistent/{NAME}")],
        ]
        .iter()
        .map(|arguments| {
            let mut command = Command::new(place.helper("terminal")?);
            let said = ends_within(COMPARED, command.arg(program()).args(*arguments))?.stdout;
            of_hugewise(arguments, &said)
        }),
    )
}
