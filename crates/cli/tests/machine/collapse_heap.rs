//! `collapse` on heaps of JVMs: under load, with every collector, and with fragmented memory. Collectors take turns on
//! the JDKs; every collector runs on every JDK only in a full run.

use std::{error::Error, fs, process::Command, time::Instant};

use hugewise_jvm::jdks::Jdk;
use hugewise_linux::units::Bytes;
use serde_json::Value;

use crate::{
    TestResult, Trial,
    collapse::{MIB, Program, collapse, json, total_huge},
    compiling::compiled,
    fragmentation,
    java::knows,
    killed::number,
    needs::{
        Need::{Fragment, Java, Root, Thp},
        jdks,
    },
    represents,
    start::{run, says},
    trial,
};

/// Environment variable: size of the heaps under load, in MiB.
const HEAP: &str = "HUGEWISE_COLLAPSE_MIB";
const LOAD: &str = include_str!("CollapseLoad.java");
const COLLECTORS: [&str; 5] = ["UseSerialGC", "UseParallelGC", "UseG1GC", "UseZGC", "UseShenandoahGC"];

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Thp, Java, Fragment];
    let mut trials = vec![trial("collapse: fragmented memory, of the whole machine", &needs, fragmented)];
    let jdks = jdks();
    for (j, jdk) in jdks.iter().enumerate() {
        let known = COLLECTORS.into_iter().enumerate().filter(|(_, collector)| knows(jdk, collector));
        for (c, collector) in known {
            let (jdk, name) =
                (jdk.clone(), format!("collapse: JDK {} with {collector}, under load", jdk.version));
            let collapsed = trial(&name, &[Root, Thp, Java], move || heap(&jdk, collector));
            trials.push(collapsed.representing(represents(j, jdks.len(), c)));
        }
    }
    trials
}

/// A JVM with a heap of `mib` MiB, half of which is in use.
fn load(jdk: &Jdk, flags: &[&str], mib: u64) -> Result<Program, Box<dyn Error>> {
    let folder = compiled("CollapseLoad", LOAD)?;
    let mut command = Command::new(&jdk.java);
    for variable in ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"] {
        command.env_remove(variable);
    }
    command.args([format!("-Xms{mib}m"), format!("-Xmx{mib}m")]).args(flags).arg("-cp").arg(folder.path());
    // With some collectors, one generation must hold all of it.
    command.args(["CollapseLoad", &(mib / 2).to_string(), "2"]);
    let mut program = Program::start(&mut command, folder)?;
    program.until("filled")?;
    Ok(program)
}

fn heap(jdk: &Jdk, collector: &str) -> TestResult {
    let mib = number(HEAP)?.unwrap_or(256);
    let mut program = load(jdk, &[&format!("-XX:+{collector}"), "-XX:+AlwaysPreTouch"], mib)?;
    program.ask("?\n")?;
    let pid = program.pid();
    let ran = run(&["collapse", &pid, "--json", "--allow-reclaim", "--region", "heap"])?;
    let reported = json(&ran)?;
    let worst: u64 = program.ask("?\n")?.parse()?;
    let regions = reported["regions"].as_array().ok_or("no regions")?;
    let sum = |field: &str| regions.iter().filter_map(|region| region[field].as_u64()).sum::<u64>();
    let (resident, after) = (sum("resident_after_bytes"), sum("huge_after_bytes"));
    assert_eq!(reported["after"].as_u64(), Some(after), "{reported:#}");
    assert!(reported["before"].as_u64().is_some_and(|before| before < resident / 20), "{reported:#}");
    assert!((mib * MIB / 16 * 15..=mib * MIB / 6 * 7).contains(&resident), "counted once: {reported:#}");
    // On a busy machine, the kernel refuses ranges while it migrates or locks their pages.
    let ends = |range: &Value| Some(range["end"].as_u64()? - range["start"].as_u64()?);
    let refused: u64 = reported["refused"].as_array().into_iter().flatten().filter_map(ends).sum();
    assert!(after > resident / 2 && after + refused >= resident / 20 * 19, "{reported:#}");
    // From the kernel's smaps.
    assert!(total_huge(&pid)? >= after / 20 * 19, "{reported:#}");
    eprintln!(
        "JDK {} {collector}: coverage {:.2} %, {:.2} GiB/s, longest call {:.1} ms, longest iteration {worst} µs",
        jdk.version,
        after as f64 / resident as f64 * 100.0,
        reported["bytes_per_second"].as_f64().unwrap_or(0.0) / 1_073_741_824.0,
        reported["longest_call_seconds"].as_f64().unwrap_or(0.0) * 1e3,
    );
    split(&mut program, &format!("JDK {} {collector}", jdk.version))?;
    program.ends_right()
}

/// Takes the heap off huge pages again.
fn split(program: &mut Program, what: &str) -> TestResult {
    let pid = program.pid();
    let reported = json(&run(&["split", &pid, "--json", "--region", "heap"])?)?;
    let worst: u64 = program.ask("?\n")?.parse()?;
    let (before, after) = (reported["before"].as_u64(), reported["after"].as_u64());
    let (before, after) = (before.ok_or("no before")?, after.ok_or("no after")?);
    // On a busy machine, the kernel skips huge pages that it uses at that moment; the JVM allocates no others.
    assert!(after <= before / 20 && total_huge(&pid)? <= before / 10, "{reported:#}");
    assert_eq!(reported["outcome"], "finished", "{reported:#}");
    eprintln!(
        "{what}: split at {:.2} GiB/s, longest call {:.1} ms, longest iteration {worst} µs",
        reported["bytes_per_second"].as_f64().unwrap_or(0.0) / 1_073_741_824.0,
        reported["longest_call_seconds"].as_f64().unwrap_or(0.0) * 1e3,
    );
    Ok(())
}

/// Uses the memory of the whole machine for half a minute.
fn fragmented() -> TestResult {
    let jdk = jdks().first().cloned().ok_or("no JDK")?;
    let mut program = load(&jdk, &["-XX:+UseParallelGC", "-XX:+AlwaysPreTouch"], 2048)?;
    let mut held = fragmentation::fragment_machine(Bytes(4 << 30))?;
    eprintln!("{:?}", held.outcome);
    let pid = program.pid();
    let counters = || -> Result<u64, Box<dyn Error>> {
        let text = fs::read_to_string("/proc/vmstat")?;
        let stall = text.lines().find_map(|line| line.strip_prefix("compact_stall "));
        Ok(stall.ok_or("no compact_stall")?.parse()?)
    };
    let before = counters()?;
    // Without --allow-reclaim it uses only the few free blocks that may be left.
    let refused = run(&["collapse", &pid, "--region", "heap"])?;
    let begin = Instant::now();
    let reported = collapse(&pid, &["--region", "heap"], 1);
    let (lasted, stalls) = (begin.elapsed(), counters()? - before);
    if !held.is_held() {
        return fragmentation::released();
    }
    says(&refused.ended_with(1)?.stdout, &["--allow-reclaim", "compact_memory"])?;
    let reported = reported?;
    eprintln!(
        "fragmented: {} after {lasted:?}, {stalls} compactions: {}",
        reported["outcome"], reported["detail"]
    );
    assert_eq!(reported["outcome"], "fragmented", "{reported:#}");
    assert!(stalls < 200, "{stalls} direct compactions");
    says(reported["actions"][0]["change"].as_str().unwrap_or_default(), &["free some"])?;
    held.end();
    program.ask("?\n")?;
    program.ends_right()
}
