//! `compare --live`: a running JVM takes turns on base and on huge pages, and is left as it was found.

use std::{error::Error, process::Command, thread, time::Duration};

use crate::{
    TestResult, Trial,
    allocation::allocating,
    collapse::{MIB, Program, json, refused_without_rights, total_huge},
    compiling::{compile, compiled},
    java::knows,
    needs::{
        Need::{Compiler, Free, Java, Root, Thp},
        jdks,
    },
    represents,
    start::{BUSY, Running, hugewise, run, says},
    trial,
};
use hugewise_jvm::jdks::Jdk;
use serde_json::Value;

/// Locks all of its memory, and waits for the end of its input.
const LOCKED: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(void)
{
    size_t bytes = 32ul << 20;
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    memset(memory, 1, bytes);
    if (mlockall(MCL_CURRENT)) return 2;
    puts("ready");
    fflush(stdout);
    return getchar() == 0;
}
"#;
const LOAD: &str = include_str!("LiveLoad.java");
/// Size of the heap in MiB; half of it is in use.
pub const HEAP_MIB: u64 = 256;
/// Size of the numbers in the heap.
pub const DATA_BYTES: u64 = HEAP_MIB / 2 * MIB;
const COLLECTORS: [&str; 5] = ["UseG1GC", "UseZGC", "UseParallelGC", "UseSerialGC", "UseShenandoahGC"];

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Thp, Java, Free(1500)];
    let mut trials = vec![
        trial("live: Ctrl-C, the end of the process, and a dry run", &needs, ends_early),
        trial("live: without a metric, and left on huge pages", &needs, figures),
        trial("live: without a metric and allocations", &needs, without_allocations).representing(false),
        trial("live: without the capabilities", &needs, without_rights),
        trial("live: locked memory stays as it is", &[Root, Thp, Compiler], locked),
    ];
    let jdks = jdks();
    for (j, jdk) in jdks.iter().enumerate() {
        let known = COLLECTORS.into_iter().enumerate().filter(|(_, collector)| knows(jdk, collector));
        for (c, collector) in known {
            let (jdk, name) = (jdk.clone(), format!("live: JDK {} with {collector}", jdk.version));
            // ZGC's heap is shared memory; those of the other collectors are alike, and other tests run G1.
            let rounds = if c == 0 { 3 } else { 1 };
            let compared = trial(&name, &needs, move || {
                let (program, url) = load(&jdk, collector)?;
                turns(&program.pid(), &url, rounds)?;
                program.ends_right()
            });
            trials.push(compared.representing(collector == "UseZGC" && represents(j, jdks.len(), c)));
        }
    }
    trials
}

/// A JVM that swaps numbers, and the URL of its metrics.
pub fn load(jdk: &Jdk, collector: &str) -> Result<(Program, String), Box<dyn Error>> {
    load_by(&["env"], jdk, collector)
}

/// The same, started by a command that executes its last arguments.
pub fn load_by(before: &[&str], jdk: &Jdk, collector: &str) -> Result<(Program, String), Box<dyn Error>> {
    let folder = compiled("LiveLoad", LOAD)?;
    let mut command = Command::new(before[0]);
    command.args(&before[1..]).arg(&jdk.java);
    for variable in ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"] {
        command.env_remove(variable);
    }
    command.args([format!("-Xms{HEAP_MIB}m"), format!("-Xmx{HEAP_MIB}m"), format!("-XX:+{collector}")]);
    command.args(["-XX:+AlwaysPreTouch", "-cp"]).arg(folder.path());
    command.args(["LiveLoad", &(HEAP_MIB / 2).to_string()]);
    let mut program = Program::start(&mut command, folder)?;
    let filled = program.until("filled")?.pop().unwrap_or_default();
    let port = filled.split(' ').nth(1).ok_or("no port")?;
    Ok((program, format!("http://127.0.0.1:{port}/metrics")))
}

pub fn first_jdk() -> Result<Jdk, Box<dyn Error>> {
    Ok(jdks().first().cloned().ok_or("no JDK")?)
}

/// The options of a short comparison.
pub fn compare<'a>(pid: &'a str, url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let options = ["compare", "--live", pid, "--json", "--allow-reclaim", "--turn", "1"];
    let metric = ["--metric-url", url, "--metric", "swaps/s=prom:swaps_total"];
    [&options[..], &metric[..], more].concat()
}

/// Compares a JVM of [`load`], and checks the result, which it returns.
pub fn turns(pid: &str, url: &str, rounds: usize) -> Result<Value, Box<dyn Error>> {
    let before = total_huge(pid)?;
    let ran = run(&compare(pid, url, &["--rounds", &rounds.to_string()]))?;
    let reported = json(&ran)?;
    assert!(ran.status.code().is_some_and(|code| [0, 1, 3].contains(&code)), "{ran:#?}");
    let turns = reported["rounds"].as_array().ok_or("no rounds")?;
    assert_eq!(
        (turns.len(), reported["live"]["turns"].as_array().map(Vec::len)),
        (2 * rounds, Some(2 * rounds)),
        "{reported:#}"
    );
    for round in turns {
        let coverage = round["coverage"].as_f64().ok_or("no coverage")?;
        let is_right = if round["arm"] == 0 { coverage < 0.2 } else { coverage > 0.8 };
        assert!(is_right && round["fell_back"].is_null(), "{reported:#}");
        for figure in ["swaps/s", "cpu"] {
            assert!(round["figures"][figure].as_f64().is_some_and(|rate| rate > 0.0), "{reported:#}");
        }
    }
    assert_eq!(reported["live"]["left"], "as_found", "{reported:#}");
    let has_ratio = reported["backings"][1]["ratio"]["estimate"].as_f64().is_some();
    assert_eq!(has_ratio, rounds >= 3, "{reported:#}");
    eprintln!("{}: {}", reported["cases"][0]["name"], reported["backings"][1]["ratio"]);
    let notes = reported["notes"].to_string();
    assert!(notes.contains("the program's metric 'swaps/s'"), "{notes}");
    let after = total_huge(pid)?;
    assert!(after <= before + HEAP_MIB * MIB / 10, "{before} {after}");
    Ok(reported)
}

/// Starts a comparison of which no turn ends in the time of a test.
fn start(pid: &str, url: &str) -> Result<Running, Box<dyn Error>> {
    let options = ["compare", "--live", pid, "--json", "--allow-reclaim", "--turn", "600", "--rounds", "3"];
    let metric = ["--metric-url", url, "--metric", "swaps/s=prom:swaps_total"];
    Running::start(&mut hugewise(&[&options[..], &metric[..]].concat()))
}

/// The same, and waits until it has moved the memory to huge pages, or to base pages.
fn started(pid: &str, url: &str, to_huge: bool) -> Result<Running, Box<dyn Error>> {
    let mut running = start(pid, url)?;
    while (total_huge(pid)? >= DATA_BYTES / 2) != to_huge {
        if running.child.try_wait()?.is_some() {
            let ended = running.wait()?;
            if !ended.stderr.contains(BUSY) {
                return Err(format!("it ended before its turns: {ended:#?}").into());
            }
            running = start(pid, url)?;
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(running)
}

fn ends_early() -> TestResult {
    let (program, url) = load(&first_jdk()?, "UseG1GC")?;
    let pid = program.pid();
    let dry = run(&["compare", "--live", &pid, "--dry-run"])?.ended_with(0)?;
    says(&dry.stdout, &["would change their pages", "a transition to huge pages takes about"])?;
    assert!(total_huge(&pid)? < HEAP_MIB * MIB / 10);
    let running = started(&pid, &url, true)?;
    running.signal("INT")?;
    let ran = running.wait()?.ended_with(130)?;
    says(&ran.stderr, &["before a turn was complete"])?;
    let left = total_huge(&pid)?;
    assert!(left < HEAP_MIB * MIB / 10, "{left} {ran:#?}");
    // The process ends during the warm-up.
    let running = started(&pid, &url, true)?;
    drop(program);
    says(&running.wait()?.ended_with(2)?.stderr, &["ended before a turn was complete"])
}

/// Compares one round without a metric, and leaves the memory on huge pages.
fn left_huge(pid: &str) -> Result<Value, Box<dyn Error>> {
    let options = ["--json", "--allow-reclaim", "--turn", "1", "--rounds", "1", "--leave", "huge"];
    let left = json(&run(&[&["compare", "--live", pid][..], &options].concat())?)?;
    assert_eq!(left["live"]["left"], "huge", "{left:#}");
    Ok(left)
}

/// A figure of the process decides.
fn without_allocations() -> TestResult {
    let (program, _) = load(&first_jdk()?, "UseG1GC")?;
    let left = left_huge(&program.pid())?;
    let has_counters = !left["notes"].to_string().contains("no hardware counters");
    let expected = if has_counters { "cycles_per_instruction" } else { "cpu" };
    assert_eq!(left["cases"][0]["figures"][0]["name"], expected, "{left:#}");
    says(&left["notes"].to_string(), &["a turn needs 10 young collections"])?;
    assert!(total_huge(&program.pid())? > HEAP_MIB * MIB / 2, "{left:#}");
    program.ends_right()
}

/// The CPU time of a JVM that allocates decides, for each GiB.
fn figures() -> TestResult {
    let mut allocating = allocating(&first_jdk()?, "UseG1GC", &["-XX:+AlwaysPreTouch"])?;
    allocating.send("1000000000\n")?;
    let with = left_huge(&allocating.pid())?;
    assert!(total_huge(&allocating.pid())? > 64 * MIB, "{with:#}");
    assert_eq!(with["cases"][0]["figures"][0]["name"], "cpu_per_allocated_gib", "{with:#}");
    let rounds = with["rounds"].as_array().ok_or("no rounds")?;
    let known =
        |round: &Value| round["figures"]["cpu_per_allocated_gib"].as_f64().is_some_and(|cpu| cpu > 0.0);
    assert!(rounds.len() == 2 && rounds.iter().all(known), "{with:#}");
    Ok(())
}

/// Huge pages of locked memory cannot be split, so nothing could put it back.
fn locked() -> TestResult {
    let folder = tempfile::tempdir()?;
    let binary = compile(folder.path(), "locked", LOCKED)?;
    let mut program = Program::start(&mut Command::new(binary), folder)?;
    program.until("ready")?;
    let pid = program.pid();
    let ran = run(&["compare", "--live", &pid, "--allow-reclaim", "--turn", "1", "--rounds", "1"])?;
    says(&ran.ended_with(2)?.stderr, &["has no memory in this region that can be on huge pages"])?;
    assert_eq!(total_huge(&pid)?, 0);
    Ok(())
}

fn without_rights() -> TestResult {
    let (program, _) = load(&first_jdk()?, "UseG1GC")?;
    let dry = refused_without_rights(program, &["compare", "--live"], &[])?;
    says(&dry, &["Not possible now", "CAP_SYS_NICE"])
}
