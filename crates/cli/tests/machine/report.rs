//! `hugewise report`: the waits of a real JVM, attributed to its threads and pauses, compared with the
//! kernel's text of the same events.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
};

use hugewise_jvm::jdks::Jdk;
use hugewise_linux::{hugepages::thp, root::Root, units::Bytes};
use hugewise_record::recording::Reader;
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    TestResult, fragmentation,
    java::{compiled, knows},
    needs::{
        Need::{Fragment, Free, Java, Root as Rights, Thp},
        jdks,
    },
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
    let mut trials = Vec::new();
    for jdk in jdks().into_iter().filter(|jdk| [17, 25].contains(&jdk.major)) {
        for collector in ["Parallel", "Z", "Shenandoah"] {
            if !knows(&jdk, &format!("Use{collector}GC")) {
                continue;
            }
            let name = |memory: &str| format!("report: JDK {}, {collector}, {memory}", jdk.version);
            for flag in ["-XX:-UseTransparentHugePages", "-XX:+UseTransparentHugePages"] {
                let (of, name) = (jdk.clone(), name(&format!("memory as it is, {flag}")));
                let needs = [Rights, Thp, Java, Free(2500)];
                trials.push(trial(&name, &needs, move || not_fragmented(&of, collector, flag)));
            }
            let (of, name) = (jdk.clone(), name("memory fragmented"));
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

/// At least nine tenths of the waits in the kernel's text are found in the same threads, and in the worst
/// pause the difference is at most a tenth.
fn fragmented(jdk: &Jdk, collector: &str) -> TestResult {
    let collector = format!("-XX:+Use{collector}GC");
    let mut options = vec!["-Xms5g", "-Xmx5g", &collector, "-XX:+UseTransparentHugePages"];
    if collector.contains("Parallel") {
        options.push("-Xmn1g");
    }
    let _shared = SharedMemory::on_thp()?;
    let held = fragmentation::fragment_machine(Bytes(6 << 30))?;
    let trace = Trace::begin()?;
    let reported = reported(jdk, &options, "2500");
    let stalls = trace.end()?;
    drop(held);
    let reported = reported?;
    let report = &reported.report;
    // On busy CPUs the time to safepoint may outweigh what is attributed to huge pages.
    assert!(report["verdict"] == "thp" || report["cause"] == "time_to_safepoint", "{report:#}");
    let reader = Reader::open(&reported.recording)?;
    let (began, pid) = (reader.header().began_ns as f64 / 1e9, reader.header().pid);
    let own = threads(reader, pid);
    let traced: f64 = own.iter().filter_map(|tid| stalls.get(tid)).flatten().map(length).sum();
    let waiting = &report["waiting"][0];
    let (found, accounted) = (number(&waiting["total_seconds"]), number(&waiting["accounted_seconds"]));
    let mut total: f64 = rows(&report["outside"])
        .filter(|row| row["wait"] == "compaction")
        .map(|row| number(&row["total_seconds"]))
        .sum();
    let mut worst = (0.0, 0.0, String::new());
    for pause in rows(&report["pauses"]) {
        let start = began + number(&pause["start_seconds"]);
        let span = start..start + number(&pause["duration_seconds"]);
        for thread in rows(&pause["threads"]) {
            let tid = thread["tid"].as_u64().and_then(|tid| u32::try_from(tid).ok()).ok_or("no thread")?;
            let said = number(&thread["compaction_seconds"]);
            let really: f64 = stalls.get(&tid).into_iter().flatten().map(|stall| overlap(stall, &span)).sum();
            total += said;
            if really.max(said) > worst.0 {
                worst = (
                    really.max(said),
                    (said - really).abs(),
                    format!("{tid}: {said} of {really} in {pause:#}"),
                );
            }
        }
    }
    println!(
        "JDK {} {collector}: compaction {traced:.3} s by the kernel's text, {found:.3} s found, {total:.3} s \
         attributed to pauses or threads, {accounted:.3} s accounted; {} pauses; worst off by {:.1} ms of {:.1}",
        jdk.version,
        report["totals"]["pauses"],
        worst.1 * 1e3,
        worst.0 * 1e3
    );
    assert!(traced > 0.0, "no thread waited for compaction");
    assert!(found >= 0.9 * traced && total >= 0.9 * traced, "{found}, {total} of {traced}");
    // Delay accounting includes attempts without an interval, which are not in the kernel's text either.
    assert!(found >= 0.8 * accounted, "{found} of {accounted} accounted");
    assert!(worst.1 <= 0.1 * worst.0, "{}", worst.2);
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

/// The threads of a process that were recorded.
fn threads(reader: Reader<fs::File>, pid: u32) -> Vec<u32> {
    use hugewise_record::recording::Line;
    let mut all: Vec<u32> = reader
        .filter_map(|line| match line {
            Ok(Line::Thread(thread)) if thread.pid == pid => Some(thread.tid),
            _ => None,
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
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
