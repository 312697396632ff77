//! `hugewise report` on pauses whose system time has a known cause other than first touch: threads beside the
//! collector that call the kernel all the time. All but one kind only in a full run.

use std::{error::Error, fs, path::Path, process::Command};

use crate::Trial;
use serde_json::Value;

use crate::{
    TestResult,
    compiling::compiled,
    needs::{
        Need::{Compiler, Free, Java, Root},
        jdks,
    },
    report::SOURCE,
    skip,
    start::{hugewise, run, run_command},
    trial,
};

/// Recordings of a storm for one that has system time in its pauses.
const MAX_RECORDINGS_PER_STORM: u32 = 3;
/// Environment variable: recordings of each storm that are judged.
const TIMES: &str = "HUGEWISE_STORMS";

/// A library that a JVM preloads: four threads with the system calls that `STORM` names. Only in `java` itself.
const STORM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGES 512

static void *storm(void *kind) {
    long page = sysconf(_SC_PAGESIZE);
    char *memory = mmap(0, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    static int word;
    for (;;) {
        if (!strcmp(kind, "mprotect")) {
            for (int at = 0; at < PAGES; at += 2) mprotect(memory + at * page, page, PROT_READ);
            mprotect(memory, PAGES * page, PROT_READ | PROT_WRITE);
        } else if (!strcmp(kind, "futex")) {
            syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, 0, 0, 0);
        } else {
            munmap(mmap(0, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), PAGES * page);
        }
    }
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    if (strcmp(program_invocation_short_name, "java")) return;
    for (int at = 0; at < 4; at++) pthread_create(&thread, 0, storm, getenv("STORM"));
}
"#;

pub fn trials() -> Vec<Trial> {
    let storm = |kind: &'static str| {
        let name = format!("report: a storm of {kind} is never first touch");
        let needs = [Root, Java, Compiler, Free(3000)];
        trial(&name, &needs, move || is_never_first_touch(kind)).representing(kind == "mprotect")
    };
    ["mprotect", "futex", "munmap"].map(storm).into()
}

/// The heap is pre-touched: the collector touches no new memory.
fn is_never_first_touch(kind: &str) -> TestResult {
    let times: u32 = std::env::var(TIMES).ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let folder = compiled("Retain", SOURCE)?;
    let library = shared_library(folder.path())?;
    let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
    let (mut verdicts, mut judged) = (Vec::new(), 0);
    // On busy CPUs the storm may miss all pauses of a recording, which then shows nothing.
    for _ in 0..MAX_RECORDINGS_PER_STORM * times {
        let report = recorded(kind, &java, folder.path(), &library)?;
        if report["verdict"] == "first_touch" {
            return Err(format!("first touch was named: {report:#}").into());
        }
        let heavy = |pause: &&Value| {
            let [sys, user] = ["sys_seconds", "user_seconds"].map(|name| pause[name].as_f64().unwrap_or(0.0));
            sys >= 0.03 && sys > user
        };
        let is_hit = report["pauses"].as_array().into_iter().flatten().any(|pause| heavy(&pause));
        let outcome = if is_hit { "" } else { " missed" };
        verdicts.push(format!(
            "{} ({}){outcome}{}",
            report["verdict"],
            report["cause"],
            why_no_log(&report)?
        ));
        judged += u32::from(is_hit);
        if judged == times {
            println!("{kind}: {}", verdicts.join(", "));
            return Ok(());
        }
    }
    skip(format!(
        "the storm took system time in pauses of {judged} of {times} recordings: {}",
        verdicts.join(", ")
    ))
}

/// The note that says why the pauses are unknown, if they are.
fn why_no_log(report: &Value) -> Result<String, Box<dyn Error>> {
    if report["cause"] != "no_log" {
        return Ok(String::new());
    }
    let mut notes = report["recording"]["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let note = notes.find(|note| note.starts_with("no log of the JVM"));
    Ok(format!(": {}", note.ok_or_else(|| format!("no reason for the missing log: {report:#}"))?))
}

fn recorded(kind: &str, java: &str, folder: &Path, library: &str) -> Result<Value, Box<dyn Error>> {
    let file = folder.join("a.rec").display().to_string();
    let classes = folder.display().to_string();
    let options =
        ["-Xms1800m", "-Xmx1800m", "-XX:+UseParallelGC", "-XX:ParallelGCThreads=1", "-XX:+AlwaysPreTouch"];
    let line = [&["record", "-o", &file, "--", java][..], &options, &["-cp", &classes, "Retain", "700"]];
    let line = line.concat();
    let record = || {
        let mut command = hugewise(&line);
        // With `java` itself as the command, the JVM writes its log from the start.
        command.current_dir(folder).env("LD_PRELOAD", library).env("STORM", kind);
        command
    };
    run_command(&record)?.ended_with(0)?;
    let report = run(&["report", "--json", &file])?;
    fs::remove_file(&file)?;
    Ok(serde_json::from_str(&report.stdout)?)
}

fn shared_library(folder: &Path) -> Result<String, Box<dyn Error>> {
    let (source, library) = (folder.join("storm.c"), folder.join("storm.so"));
    fs::write(&source, STORM)?;
    let output =
        Command::new("cc").args(["-shared", "-fPIC", "-pthread", "-o"]).args([&library, &source]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(library.display().to_string())
}
