//! `compare --live`: a running JVM takes turns on base and on huge pages, and is left as it was found.

use std::{error::Error, process::Command, thread, time::Duration};

use crate::{
    TestResult, Trial,
    collapse::{MIB, Program, json, refused_without_rights, total_huge},
    java::{compiled, knows},
    needs::{
        Need::{Free, Java, Root, Thp},
        jdks,
    },
    represents,
    start::{Running, hugewise, run, says},
    trial,
};
use hugewise_jvm::jdks::Jdk;

const LOAD: &str = include_str!("LiveLoad.java");
/// Size of the heap in MiB; half of it is in use.
const HEAP_MIB: u64 = 256;
const COLLECTORS: [&str; 5] = ["UseG1GC", "UseZGC", "UseParallelGC", "UseSerialGC", "UseShenandoahGC"];

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Thp, Java, Free(1500)];
    let mut trials = vec![
        trial("live: Ctrl-C, the end of the process, and a dry run", &needs, ends_early),
        trial("live: a killed comparison is put back by restore", &needs, killed),
        trial("live: without the capabilities", &needs, without_rights),
    ];
    let jdks = jdks();
    for (j, jdk) in jdks.iter().enumerate() {
        let known = COLLECTORS.into_iter().enumerate().filter(|(_, collector)| knows(jdk, collector));
        for (c, collector) in known {
            let (jdk, name) = (jdk.clone(), format!("live: JDK {} with {collector}", jdk.version));
            let compared = trial(&name, &needs, move || turns(&jdk, collector));
            trials.push(compared.representing(represents(j, jdks.len(), c)));
        }
    }
    trials
}

/// A JVM that swaps numbers, and the URL of its metrics.
fn load(jdk: &Jdk, collector: &str) -> Result<(Program, String), Box<dyn Error>> {
    let folder = compiled("LiveLoad", LOAD)?;
    let mut command = Command::new(&jdk.java);
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

fn first_jdk() -> Result<Jdk, Box<dyn Error>> {
    Ok(jdks().first().cloned().ok_or("no JDK")?)
}

/// The options of a short comparison.
fn compare<'a>(pid: &'a str, url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let options = ["compare", "--live", pid, "--json", "--allow-reclaim", "--turn", "1"];
    let metric = ["--metric-url", url, "--metric", "swaps/s=prom:swaps_total"];
    [&options[..], &metric[..], more].concat()
}

fn turns(jdk: &Jdk, collector: &str) -> TestResult {
    let (program, url) = load(jdk, collector)?;
    let pid = program.pid();
    let before = total_huge(&pid)?;
    let ran = run(&compare(&pid, &url, &["--rounds", "3"]))?;
    let reported = json(&ran)?;
    assert!(ran.status.code().is_some_and(|code| [0, 1, 3].contains(&code)), "{ran:#?}");
    let rounds = reported["rounds"].as_array().ok_or("no rounds")?;
    assert_eq!(
        (rounds.len(), reported["live"]["turns"].as_array().map(Vec::len)),
        (6, Some(6)),
        "{reported:#}"
    );
    for round in rounds {
        let coverage = round["coverage"].as_f64().ok_or("no coverage")?;
        let is_right = if round["arm"] == 0 { coverage < 0.2 } else { coverage > 0.8 };
        assert!(is_right && round["fell_back"].is_null(), "{reported:#}");
        assert!(round["figures"]["swaps/s"].as_f64().is_some_and(|rate| rate > 0.0), "{reported:#}");
        assert!(round["figures"]["cpu"].as_f64().is_some_and(|rate| rate > 0.0), "{reported:#}");
    }
    assert_eq!(reported["live"]["left"], "as_found", "{reported:#}");
    assert!(reported["backings"][1]["ratio"]["estimate"].as_f64().is_some(), "{reported:#}");
    eprintln!("JDK {} {collector}: {}", jdk.version, reported["backings"][1]["ratio"]);
    let after = total_huge(&pid)?;
    assert!(after <= before + HEAP_MIB * MIB / 10, "{before} {after}");
    program.ends_right()
}

/// Starts a long comparison, and waits until it is in its turns.
fn started(program: &Program, url: &str) -> Result<Running, Box<dyn Error>> {
    let pid = program.pid();
    let running = Running::start(&mut hugewise(&compare(&pid, url, &["--rounds", "100"])))?;
    while total_huge(&pid)? < HEAP_MIB * MIB / 4 {
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
    let running = started(&program, &url)?;
    running.signal("INT")?;
    let ran = running.wait()?.ended_with(130)?;
    says(&ran.stderr, &["before a turn was complete"])?;
    assert!(total_huge(&pid)? < HEAP_MIB * MIB / 10);
    // Left on huge pages, if that is asked for.
    let left = json(&run(&compare(&pid, &url, &["--rounds", "1", "--leave", "huge"]))?)?;
    assert_eq!(left["live"]["left"], "huge", "{left:#}");
    assert!(total_huge(&pid)? > HEAP_MIB * MIB / 2, "{left:#}");
    run(&["split", &pid, "--region", "heap"])?;
    // The process ends during the warm-up.
    let running = started(&program, &url)?;
    drop(program);
    says(&running.wait()?.ended_with(2)?.stderr, &["ended before a turn was complete"])
}

fn killed() -> TestResult {
    let (program, url) = load(&first_jdk()?, "UseG1GC")?;
    let pid = program.pid();
    for wait in [0, 150, 700] {
        let running = started(&program, &url)?;
        thread::sleep(Duration::from_millis(wait));
        running.signal("KILL")?;
        running.wait()?;
        let restored = run(&["restore"])?.ended_with(0)?;
        says(&restored.stdout, &[&format!("Restored: the pages of process {pid}")])?;
        assert!(total_huge(&pid)? < HEAP_MIB * MIB / 10);
    }
    program.ends_right()
}

fn without_rights() -> TestResult {
    let (program, _) = load(&first_jdk()?, "UseG1GC")?;
    let dry = refused_without_rights(program, &["compare", "--live"], &[])?;
    says(&dry, &["Not possible now", "CAP_SYS_NICE"])
}
