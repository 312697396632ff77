//! Allocation of a JVM from its performance counters, compared with its GC log and with the program.

use std::{error::Error, fs, process::Command};

use hugewise_jvm::{allocation::Allocation, jdks::Jdk, performance_counters::CounterFile};
use hugewise_linux::root::Root;
use regex::Regex;
use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    collapse::Program,
    compiling::compiled,
    needs::{
        Need::{Free, Java},
        jdks,
    },
    represents, trial,
};

const ALLOCATE: &str = include_str!("Allocate.java");
const MIB: i64 = 1 << 20;
/// Steps, and MiB that the program allocates in each of them: Eden is full once or more between two readings.
const STEPS: i64 = 60;
const STEP_MIB: i64 = 50;
/// Young generation in MiB.
const YOUNG_MIB: i64 = 32;
const COLLECTORS: [&str; 3] = ["UseG1GC", "UseParallelGC", "UseSerialGC"];

pub fn trials() -> Vec<Trial> {
    let jdks = jdks();
    let mut trials = Vec::new();
    for (j, jdk) in jdks.iter().enumerate() {
        for (c, collector) in COLLECTORS.into_iter().enumerate() {
            let (jdk, name) = (jdk.clone(), format!("allocation: JDK {} with {collector}", jdk.version));
            let agrees = trial(&name, &[Java, Free(500)], move || agrees(&jdk, collector));
            trials.push(agrees.representing(represents(j, jdks.len(), c)));
        }
    }
    trials
}

/// A JVM that allocates as much as lines of its input say.
pub fn allocating(jdk: &Jdk, collector: &str, options: &[&str]) -> Result<Program, Box<dyn Error>> {
    started(jdk, collector, options, compiled("Allocate", ALLOCATE)?)
}

fn started(
    jdk: &Jdk,
    collector: &str,
    options: &[&str],
    classes: TempDir,
) -> Result<Program, Box<dyn Error>> {
    let mut command = Command::new(&jdk.java);
    for variable in ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"] {
        command.env_remove(variable);
    }
    command.args(["-Xms128m", "-Xmx128m", &format!("-XX:+{collector}"), &format!("-Xmn{YOUNG_MIB}m")]);
    command.args(options).arg("-cp").arg(classes.path());
    let mut program = Program::start(command.arg("Allocate"), classes)?;
    program.until("ready")?;
    Ok(program)
}

fn agrees(jdk: &Jdk, collector: &str) -> TestResult {
    let folder = compiled("Allocate", ALLOCATE)?;
    let log = folder.path().join("gc.log");
    let log_option = format!("-Xlog:gc*=debug:file={}", log.display());
    let mut program = started(jdk, collector, &[&log_option], folder)?;
    let root = Root::live();
    let mut file = CounterFile::open(&root, program.pid().parse()?)?;
    let mut allocation = Allocation::default();
    let mut add = || -> Result<Option<i64>, Box<dyn Error>> {
        allocation.add(&file.read()?.ok_or("another format")?);
        Ok(allocation.young_collections())
    };
    let first = add()?.ok_or("no Eden")?;
    for _ in 0..STEPS {
        program.ask(&format!("{STEP_MIB}\n"))?;
        add()?;
    }
    let collections = add()?.ok_or("no Eden")? - first;
    let bytes = allocation.bytes;
    let (logged, of_log) = logged(&fs::read_to_string(&log)?, first)?;
    let allocated = STEPS * STEP_MIB * MIB;
    eprintln!(
        "JDK {} {collector}: {} MiB allocated, {} in the counters, {} in the log; {collections} and {of_log} collections",
        jdk.version,
        allocated / MIB,
        bytes / MIB,
        logged / MIB
    );
    assert_eq!(collections, of_log);
    // Before JDK 22, G1's capacity has 5 % more, rounded up to regions: Eden can grow while the GC locker is held.
    let tolerance = if collector == "UseG1GC" && jdk.version.starts_with("17.") { 10 } else { 20 };
    for (other, name) in [(logged, "the log"), (allocated, "the program")] {
        assert!((bytes - other).abs() <= allocated / tolerance, "{bytes} in the counters, {other} in {name}");
    }
    program.ends_right()
}

/// The decreases of Eden in bytes, and the number of young collections, without the first ones.
fn logged(log: &str, without: i64) -> Result<(i64, i64), Box<dyn Error>> {
    // `Eden regions: 24->0(24)` of G1; `Eden: 24576K(24576K)->0K(24576K)` of Parallel, `eden: …` of Serial.
    let of_g1 = Regex::new(r"Eden regions: (\d+)->(\d+)")?;
    let of_others = Regex::new(r"(?i)eden: (\d+)K\(\d+K\)->(\d+)K")?;
    let region = Regex::new(r"Heap Region Size: (\d+)M")?;
    let region = match region.captures(log) {
        Some(found) => found[1].parse::<i64>()? * MIB,
        None => 0,
    };
    let mut decreases = Vec::new();
    for line in log.lines() {
        let (found, unit) = match (of_g1.captures(line), of_others.captures(line)) {
            (Some(found), _) => (found, region),
            (None, Some(found)) => (found, 1024),
            (None, None) => continue,
        };
        decreases.push((found[1].parse::<i64>()? - found[2].parse::<i64>()?) * unit);
    }
    let counted = decreases.get(usize::try_from(without)?..).unwrap_or_default();
    Ok((counted.iter().sum(), i64::try_from(counted.len())?))
}
