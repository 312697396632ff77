//! `hugewise report`: the waits of a real JVM, attributed to its threads and pauses, compared with the
//! kernel's text of the same events. Without fragmentation, each collector of each JDK runs with and without THP in
//! turns; with both only in a full run.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
};

use hugewise_jvm::{jdks::Jdk, threads::Role};
use hugewise_linux::{hugepages::thp, root::Root, units::Bytes};
use hugewise_record::recording::Reader;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    compiling::compiled,
    fragmentation,
    java::knows,
    needs::{
        Need::{Fragment, Free, Java, Root as Rights, Thp},
        jdks,
    },
    represents,
    start::run,
    trial,
};

/// Keeps the number of MiB given as argument, and allocates twice as much garbage: more than the heap, so
/// that it is collected at any load of the machine.
pub const SOURCE: &str = "
import java.util.ArrayList;
public class Retain {
    public static void main(String[] arguments) {
        ArrayList<byte[]> kept = new ArrayList<>();
        for (long i = Long.parseLong(arguments[0]) * 16; i > 0; i--) {
            kept.add(new byte[1 << 16]);
            byte[] thrown = new byte[1 << 17];
            thrown[(int) (i % thrown.length)] = 1;
        }
        System.out.println(kept.size());
    }
}
";

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![trial(
        "report: the comparison with the kernel's text finds differences",
        &[],
        comparison_finds_differences,
    )];
    for (j, jdk) in jdks().into_iter().filter(|jdk| [17, 25].contains(&jdk.major)).enumerate() {
        for (c, collector) in ["Parallel", "Z", "Shenandoah"].into_iter().enumerate() {
            if !knows(&jdk, &format!("Use{collector}GC")) {
                continue;
            }
            let name = |memory: &str| format!("report: JDK {}, {collector}, {memory}", jdk.version);
            let flags = ["-XX:-UseTransparentHugePages", "-XX:+UseTransparentHugePages"];
            for (f, flag) in flags.into_iter().enumerate() {
                let (of, name) = (jdk.clone(), name(&format!("memory as it is, {flag}")));
                let needs = [Rights, Thp, Java, Free(2500)];
                let reported = trial(&name, &needs, move || not_fragmented(&of, collector, flag));
                trials.push(reported.representing(represents(f, flags.len(), j + c)));
            }
            let (of, name) = (jdk.clone(), name("memory of the whole machine fragmented"));
            trials.push(trial(&name, &[Rights, Thp, Java, Fragment], move || fragmented(&of, collector)));
        }
    }
    trials
}

/// A recording of [`SOURCE`], and its report.
struct Reported {
    _folder: TempDir,
    recording: PathBuf,
    report: Value,
}

fn reported(jdk: &Jdk, options: &[&str], keep: &str) -> Result<Reported, Box<dyn Error>> {
    let folder = compiled("Retain", SOURCE)?;
    let recording = folder.path().join("a.rec");
    let (file, java) = (recording.display().to_string(), jdk.java.display().to_string());
    let classes = folder.path().display().to_string();
    let line =
        [&["record", "-o", &file, "--", &java][..], options, &["-cp", &classes, "Retain", keep]].concat();
    run(&line)?.ended_with(0)?;
    let ran = run(&["report", "--json", &file])?;
    let report = serde_json::from_str(&ran.stdout)?;
    Ok(Reported { _folder: folder, recording, report })
}

/// System time of first touch in pauses is never attributed to huge pages.
///
/// The load of other programs on CPUs and memory adds to the pauses, and may decide the verdict.
fn not_fragmented(jdk: &Jdk, collector: &str, flag: &str) -> TestResult {
    let collector = format!("-XX:+Use{collector}GC");
    let options = ["-Xms1500m", "-Xmx1500m", &collector, flag];
    let _shared = SharedMemory::on_thp()?;
    let reported = reported(jdk, &options, "600")?;
    let report = &reported.report;
    assert!(report["pauses"].as_array().is_some_and(|pauses| !pauses.is_empty()), "{report:#}");
    let mut waited = 0.0;
    assert!(rows(&report["waiting"]).count() > 0, "no kind of wait is reported: {report:#}");
    for row in rows(&report["waiting"]) {
        let accounted = row["accounted_seconds"].as_f64().ok_or("no delay accounting")?;
        assert!(number(&row["for_huge_seconds"]) <= accounted, "more than the kernel accounts: {report:#}");
        waited += accounted;
    }
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or("no verdict");
    let (verdict, because) = (text(&report["verdict"])?, text(&report["cause"])?);
    let right = match (verdict.as_str(), because.as_str()) {
        ("first_touch" | "none", _) => true,
        // On busy CPUs times to safepoint are long; with other load on memory, first touch takes more system
        // time than measured at the start.
        ("other" | "inconclusive", "time_to_safepoint" | "system_time" | "first_touch_possible") => true,
        // The kernel accounts waits to these threads: memory is scarce or fragmented.
        ("thp", _) => waited > 0.0 && flag.starts_with("-XX:+"),
        ("other", "other_waiting") => waited > 0.0,
        _ => false,
    };
    assert!(right, "{report:#}");
    Ok(())
}

/// The compaction of each thread, and of each collector thread in each pause, is that of the kernel's text.
fn fragmented(jdk: &Jdk, collector: &str) -> TestResult {
    let collector = format!("-XX:+Use{collector}GC");
    let mut options = vec!["-Xms5g", "-Xmx5g", &collector, "-XX:+UseTransparentHugePages"];
    if collector.contains("Parallel") {
        options.push("-Xmn1g");
    }
    let _shared = SharedMemory::on_thp()?;
    let mut held = fragmentation::fragment_machine(Bytes(6 << 30))?;
    let trace = Trace::begin()?;
    let reported = reported(jdk, &options, "2500");
    let stalls = trace.end()?;
    let is_held = held.is_held();
    drop(held);
    if !is_held {
        return fragmentation::released();
    }
    let reported = reported?;
    let report = &reported.report;
    // On busy CPUs the time to safepoint may outweigh what is attributed to huge pages.
    assert!(report["verdict"] == "thp" || report["cause"] == "time_to_safepoint", "{report:#}");
    let reader = Reader::open(&reported.recording)?;
    let (began, pid) = (reader.header().began_ns as f64 / 1e9, reader.header().pid);
    let own = threads(reader, pid);
    let traced: f64 = own.keys().filter_map(|tid| stalls.get(tid)).flatten().map(length).sum();
    let waiting = &report["waiting"][0];
    let (found, accounted) = (number(&waiting["total_seconds"]), number(&waiting["accounted_seconds"]));
    let shares = shares(report, began, &own, &stalls)?;
    let waits = waits(report, &shares)?;
    let total: f64 = waits.values().sum();
    println!(
        "JDK {} {collector}: compaction {traced:.3} s by the kernel's text, {found:.3} s found, {total:.3} s \
         attributed to pauses or threads, {accounted:.3} s accounted; {} pauses, {} waiting threads in them, {} \
         in all",
        jdk.version,
        report["totals"]["pauses"],
        shares.len(),
        waits.len()
    );
    assert!(traced > 0.0, "no thread waited for compaction");
    assert!(found >= 0.9 * traced && total >= 0.9 * traced, "{found}, {total} of {traced}");
    // Delay accounting includes attempts without an interval, which are not in the kernel's text either.
    assert!(found >= 0.8 * accounted, "{found} of {accounted} accounted");
    // Z and Shenandoah allocate and relocate outside of pauses.
    let is_concurrent = !collector.contains("Parallel");
    assert!(is_concurrent || !shares.is_empty(), "no collector thread waited in a pause");
    for (tid, name) in &own {
        let traced: f64 = stalls.get(tid).into_iter().flatten().map(length).sum();
        let reported = waits.get(tid).copied().unwrap_or(0.0);
        assert!(agree(reported, traced), "{name}: {reported} of {traced}: {report:#}");
    }
    match shares.iter().find(|share| !share.agrees()) {
        Some(share) => Err(format!("{share:?}: {report:#}").into()),
        None => Ok(()),
    }
}

/// Compaction of a collector thread in a pause, in seconds.
#[derive(Debug)]
#[allow(dead_code)] // Printed.
struct Share {
    tid: u32,
    /// Number of the pause in the report.
    pause: usize,
    /// By the kernel's text.
    traced: f64,
    /// By the report; 0 if it does not list the thread.
    reported: f64,
}

impl Share {
    fn agrees(&self) -> bool {
        agree(self.reported, self.traced)
    }
}

/// Within a tenth, or the precision of the times in the log.
fn agree(reported: f64, traced: f64) -> bool {
    (reported - traced).abs() <= (0.1 * traced.max(reported)).max(0.001)
}

/// The compaction of each thread by the report, in and outside of pauses, in seconds.
fn waits(report: &Value, shares: &[Share]) -> Result<BTreeMap<u32, f64>, Box<dyn Error>> {
    let mut all = BTreeMap::new();
    for row in rows(&report["outside"]).filter(|row| row["wait"] == "compaction") {
        *all.entry(tid(row)?).or_default() += number(&row["total_seconds"]);
    }
    for share in shares {
        *all.entry(share.tid).or_default() += share.reported;
    }
    Ok(all)
}

/// Thread of a row.
fn tid(row: &Value) -> Result<u32, &'static str> {
    row["tid"].as_u64().and_then(|tid| u32::try_from(tid).ok()).ok_or("no thread")
}

/// The compaction of every traced or reported collector thread in every pause.
fn shares(
    report: &Value,
    began: f64,
    names: &BTreeMap<u32, String>,
    stalls: &Stalls,
) -> Result<Vec<Share>, Box<dyn Error>> {
    let mut all = Vec::new();
    for (at, pause) in rows(&report["pauses"]).enumerate() {
        let start = began + number(&pause["start_seconds"]);
        let span = start..start + number(&pause["duration_seconds"]);
        let mut reported = BTreeMap::new();
        for thread in rows(&pause["threads"]) {
            reported.insert(tid(thread)?, number(&thread["compaction_seconds"]));
        }
        let collectors = names.iter().filter(|(_, name)| Role::of(name).collects()).map(|(tid, _)| *tid);
        let tids: BTreeSet<u32> = collectors.chain(reported.keys().copied()).collect();
        for tid in tids {
            let traced = stalls.get(&tid).into_iter().flatten().map(|stall| overlap(stall, &span)).sum();
            let reported = reported.get(&tid).copied().unwrap_or(0.0);
            if traced > 0.0 || reported > 0.0 {
                all.push(Share { tid, pause: at, traced, reported });
            }
        }
    }
    Ok(all)
}

/// The comparison finds a thread that the report leaves out, one that it lists wrongly, and one that did not wait.
fn comparison_finds_differences() -> TestResult {
    let names =
        [(10, "GC Thread#0"), (11, "GC Thread#1"), (12, "main")].map(|(tid, name)| (tid, name.to_owned()));
    let stalls = Stalls::from([10, 11, 12].map(|tid| (tid, vec![101.0..101.5])));
    let thread = |tid: u32, seconds: f64| json!({"tid": tid, "compaction_seconds": seconds});
    let agree = |threads: Value| -> Result<bool, Box<dyn Error>> {
        let report = json!({"pauses": [{"start_seconds": 1.0, "duration_seconds": 2.0, "threads": threads}]});
        Ok(shares(&report, 100.0, &BTreeMap::from(names.clone()), &stalls)?.iter().all(Share::agrees))
    };
    assert!(agree(json!([thread(10, 0.5), thread(11, 0.49)]))?);
    assert!(!agree(json!([thread(10, 0.5)]))?, "a thread is left out");
    assert!(!agree(json!([thread(10, 0.5), thread(11, 0.4)]))?, "a wrong time");
    assert!(!agree(json!([thread(10, 0.5), thread(11, 0.5), thread(13, 0.1)]))?, "a thread did not wait");
    Ok(())
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn length(span: &Range<f64>) -> f64 {
    span.end - span.start
}

fn overlap(a: &Range<f64>, b: &Range<f64>) -> f64 {
    (a.end.min(b.end) - a.start.max(b.start)).max(0.0)
}

/// The threads of a process that were recorded, with their names.
fn threads(reader: Reader<fs::File>, pid: u32) -> BTreeMap<u32, String> {
    use hugewise_record::recording::Line;
    reader
        .filter_map(|line| match line {
            Ok(Line::Thread(thread)) if thread.pid == pid => Some((thread.tid, thread.name)),
            Ok(Line::ThreadEnd(end)) if end.pid == Some(pid) => Some((end.usage.tid, end.name)),
            _ => None,
        })
        .collect()
}

/// Intervals in which threads compacted memory, in seconds.
type Stalls = BTreeMap<u32, Vec<Range<f64>>>;

/// A tracing instance of the test, whose text is read.
struct Trace {
    mount: TempDir,
}

impl Trace {
    fn begin() -> Result<Trace, Box<dyn Error>> {
        let trace = Trace { mount: tempfile::tempdir()? };
        let done = Command::new("mount").args(["-t", "tracefs", "none"]).arg(trace.mount.path()).status()?;
        assert!(done.success(), "tracefs was not mounted");
        fs::create_dir(trace.instance())?;
        for (file, value) in [
            ("trace_clock", "mono"),
            ("buffer_size_kb", "16384"),
            ("events/compaction/mm_compaction_begin/enable", "1"),
            ("events/compaction/mm_compaction_end/enable", "1"),
        ] {
            fs::write(trace.instance().join(file), value)?;
        }
        Ok(trace)
    }

    fn instance(&self) -> PathBuf {
        self.mount.path().join("instances/hugewise-test")
    }

    fn end(self) -> Result<Stalls, Box<dyn Error>> {
        let text = fs::read(self.instance().join("trace"))?;
        let (mut open, mut all) = (BTreeMap::new(), Stalls::new());
        for line in String::from_utf8_lossy(&text).lines().filter(|line| !line.starts_with('#')) {
            let Some((tid, seconds, event)) = happened(line) else { continue };
            match event {
                "mm_compaction_begin" => drop(open.insert(tid, seconds)),
                _ => all.entry(tid).or_default().extend(open.remove(&tid).map(|begin| begin..seconds)),
            }
        }
        Ok(all)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.instance());
        let _ = Command::new("umount").arg(self.mount.path()).status();
    }
}

/// `     GC Thread#0-18543   [001] .....  3456.789012: mm_compaction_begin: …`
fn happened(line: &str) -> Option<(u32, f64, &str)> {
    let (who, rest) = line.split_once(" [0")?;
    let tid = who.trim_end().rsplit_once('-')?.1.parse().ok()?;
    let mut words = rest.split_whitespace().skip(2);
    let seconds = words.next()?.strip_suffix(':')?.parse().ok()?;
    Some((tid, seconds, words.next()?.strip_suffix(':')?))
}

/// Enables THP for shared memory, which ZGC uses for its heap.
pub struct SharedMemory(Option<&'static Path>);

impl SharedMemory {
    pub fn on_thp() -> Result<SharedMemory, Box<dyn Error>> {
        let file = Path::new("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        if thp::read(&Root::live()).shmem_enabled.known().map(String::as_str) != Some("never") {
            return Ok(SharedMemory(None));
        }
        fs::write(file, "advise")?;
        Ok(SharedMemory(Some(file)))
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if let Some(file) = self.0 {
            let _ = fs::write(file, "never");
        }
    }
}
