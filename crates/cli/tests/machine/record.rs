//! Recordings of real programs; no setting, log or file stays behind.

use std::{
    collections::BTreeSet,
    error::Error,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use hugewise_jvm::{
    attach::{Jvm, TIME_LIMIT},
    jdks::Jdk,
    log_control,
};
use hugewise_linux::{
    root::Root,
    sys::{aside::Deadline, process::monotonic_ns},
};
use hugewise_record::recording::{Cause, EndReason, Ending, Evidence, Header, Line, Reader};
use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    compiling::compiled,
    java::knows,
    needs::{
        Need::{Java, Pool, Root as Rights, Thp},
        jdks,
    },
    start::{Running, hugewise, run, run_command, says, wait_until},
    trial,
    without::{UNPRIVILEGED, accessible_copy},
};

/// Allocates until it is ended, or for the number of rounds given as argument.
const SOURCE: &str = "
public class Churn {
    static byte[][] kept = new byte[1500][];
    public static void main(String[] arguments) {
        long rounds = arguments.length > 0 ? Long.parseLong(arguments[0]) : Long.MAX_VALUE;
        for (long i = 0; i < rounds; i++) {
            kept[(int) (i % kept.length)] = new byte[1 << 16];
        }
    }
}
";
const HEAP: u64 = 256 << 20;
const OPTIONS: [&str; 3] = ["-Xms256m", "-Xmx256m", "-XX:+UseTransparentHugePages"];

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("record: a program that compacts memory", &[Rights], compacts),
        trial("record: SIGTERM ends it in order", &[Rights], || is_ended("TERM")),
        trial("record: SIGINT ends it in order", &[Rights], || is_ended("INT")),
        trial("record: other commands do not wait for it", &[Rights, Pool], no_process_waits),
        trial("record: SIGTERM ends the program that was started", &[Rights], ends_the_program),
        trial("record: a JVM that writes no log", &[Rights, Java], names_the_missing_log),
        trial("record: without rights", &[Rights], rights),
        trial("record: impossible recordings are refused", &[Rights], refusals),
    ];
    for jdk in jdks().into_iter().filter(|jdk| jdk.major >= 11) {
        let needs = [Rights, Thp, Java];
        let name = format!("record: JDK {}", jdk.version);
        let started = jdk.clone();
        trials.push(trial(&format!("{name}, started"), &needs, move || starts_a_jvm(&started)));
        trials.push(trial(&format!("{name}, running"), &needs, move || attaches_to_a_jvm(&jdk)));
    }
    trials
}

fn in_time() -> Deadline<'static> {
    Deadline::after(TIME_LIMIT, None)
}

/// A JVM that runs until it is killed.
pub struct AllocatingJvm {
    running: Option<Running>,
    pid: u32,
    _folder: TempDir,
}

impl Drop for AllocatingJvm {
    /// Ends the JVM also if the test fails.
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.wait();
        }
    }
}

impl AllocatingJvm {
    pub fn start(jdk: &Jdk, collector: &str) -> Result<AllocatingJvm, Box<dyn Error>> {
        let folder = compiled("Churn", SOURCE)?;
        let mut java = Command::new(&jdk.java);
        java.arg(format!("-XX:+{collector}")).args(OPTIONS).arg("-cp").arg(folder.path()).arg("Churn");
        let running = Running::start(&mut java)?;
        let pid = running.child.id();
        let churning = AllocatingJvm { running: Some(running), pid, _folder: folder };
        let root = Root::live();
        wait_until("the JVM answers", || Ok(Jvm::connect(&root, churning.pid(), in_time()).is_ok()))?;
        Ok(churning)
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Number of log files that the JVM writes.
    pub fn logs(&self) -> Result<usize, Box<dyn Error>> {
        let root = Root::live();
        let jvm = Jvm::connect(&root, self.pid(), in_time())?;
        Ok(log_control::files(&jvm)?.len())
    }

    pub fn end(mut self) -> TestResult {
        let mut running = self.running.take().ok_or("it has ended")?;
        running.child.kill()?;
        running.wait().map(drop)
    }
}

/// A recording that was read to its end.
struct Recording {
    header: Header,
    lines: Vec<Line>,
    ending: Option<Ending>,
}

impl Recording {
    fn read(path: &Path) -> Result<Recording, Box<dyn Error>> {
        let mut reader = Reader::open(path)?;
        let lines = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
        Ok(Recording { header: reader.header().clone(), lines, ending: reader.ending() })
    }

    /// Checks that the recording is complete, lost nothing, and ended for the expected reason.
    fn is_complete(&self, expected: EndReason) -> TestResult {
        let Some(Line::End(end)) = self.lines.last() else { return Err("it has no end".into()) };
        assert_eq!((self.ending, end.reason, end.lost_events), (Some(Ending::Whole), expected, Some(0)));
        let lost: Vec<_> = self.lines.iter().filter(|line| matches!(line, Line::Lost(_))).collect();
        assert!(lost.is_empty(), "{lost:?}");
        for evidence in [Evidence::Events, Evidence::Delays, Evidence::Ends, Evidence::Counters] {
            assert!(self.header.evidence[&evidence].known().is_some(), "{:#?}", self.header.evidence);
        }
        Ok(())
    }

    fn thread_names(&self) -> BTreeSet<&str> {
        self.lines
            .iter()
            .filter_map(|line| match line {
                Line::Thread(thread) => Some(thread.name.as_str()),
                Line::ThreadEnd(end) => Some(end.name.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The lines of the JVM's log.
    fn log(&self) -> Vec<&str> {
        let lines = self.lines.iter().filter_map(|line| match line {
            Line::JvmLog(log) => Some(&log.lines),
            _ => None,
        });
        lines.flatten().map(String::as_str).collect()
    }

    /// The largest resident size of the heap, in bytes; `None` if no sample has the heap.
    fn most_of_the_heap(&self) -> Option<u64> {
        let heaps = self.lines.iter().filter_map(|line| match line {
            Line::Memory(memory) => memory.heap.map(|heap| heap.resident_bytes.0),
            _ => None,
        });
        heaps.max()
    }

    /// Checks that the log has pauses and safepoints, with times on the clock and within the time of the
    /// recording.
    fn has_pauses(&self) -> TestResult {
        let end = match self.lines.last() {
            Some(Line::End(end)) => end.ns,
            _ => monotonic_ns(),
        };
        let log = self.log();
        for word in ["Pause", "Safepoint \""] {
            assert!(log.iter().any(|line| line.contains(word)), "no {word} in {log:#?}");
        }
        for line in log {
            let ns = line.strip_prefix('[').and_then(|line| line.split_once("ns]"));
            let ns: u64 = ns.ok_or(line)?.0.parse()?;
            assert!((self.header.began_ns..=end).contains(&ns), "{ns}: {line}");
        }
        Ok(())
    }
}

/// Waits until a recording under way has such a line in its file.
fn has_line(path: &Path, is: impl Fn(&Line) -> bool) -> TestResult {
    let found = |reader: Reader<File>| reader.map_while(Result::ok).any(|line| is(&line));
    wait_until("the line is recorded", || Ok(Reader::open(path).is_ok_and(found)))
}

/// Waits until a recording under way has sampled the machine.
fn has_begun(path: &Path) -> TestResult {
    has_line(path, |line| matches!(line, Line::Machine(_)))
}

fn file() -> Result<(TempDir, PathBuf, String), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.rec");
    let name = path.display().to_string();
    Ok((folder, path, name))
}

fn compacts() -> TestResult {
    let (_folder, path, name) = file()?;
    let script = "echo 1 > /proc/sys/vm/compact_memory; sh -c 'echo 1 > /proc/sys/vm/compact_memory'; exit 3";
    let make = || hugewise(&["record", "-o", &name, "--json", "--", "sh", "-c", script]);
    let ran = run_command(&make)?.ended_with(3)?;
    let recording = Recording::read(&path)?;
    recording.is_complete(EndReason::ProcessEnded)?;
    let stalls: Vec<_> = recording
        .lines
        .iter()
        .filter_map(|line| match line {
            Line::Stall(stall) if stall.cause == Cause::Compaction => Some(stall),
            _ => None,
        })
        .collect();
    let tids: BTreeSet<u32> = stalls.iter().map(|stall| stall.tid).collect();
    assert_eq!(tids.len(), 2, "the shell, and the one that it started: {stalls:#?}");
    assert!(tids.contains(&recording.header.pid) && recording.header.started);
    assert!(stalls.iter().all(|stall| stall.duration_ns().is_some()), "{stalls:#?}");
    let report: serde_json::Value = serde_json::from_str(&ran.stdout)?;
    assert_eq!(report["stalls"].as_array().map(Vec::len), Some(2), "{report:#}");
    assert_eq!(report["stalls"][0]["thread"], "sh");
    assert_eq!(report["lost"].as_array().map(Vec::len), Some(0));
    // A second recording does not overwrite the first.
    let refused = run_command(&make)?.ended_with(2)?;
    says(&refused.stderr, &[&name, "File exists"])
}

fn starts_a_jvm(jdk: &Jdk) -> TestResult {
    let (folder, path, name) = file()?;
    let classes = compiled("Churn", SOURCE)?;
    let make = || {
        let _ = fs::remove_file(&path);
        let mut command = hugewise(&["record", "-o", &name, "--"]);
        command
            .arg(&jdk.java)
            .args(OPTIONS)
            .args(["-XX:+UseParallelGC", "-cp"])
            .arg(classes.path())
            .args(["Churn", "150000"]);
        command
    };
    let ran = run_command(&make)?.ended_with(0)?;
    says(&ran.stderr, &["RECORDED", "STALLS", "HUGE PAGES"])?;
    let recording = Recording::read(&path)?;
    recording.is_complete(EndReason::ProcessEnded)?;
    recording.has_pauses()?;
    assert!(recording.log()[0].contains("[gc"), "from its first line on: {:?}", recording.log()[0]);
    let names = recording.thread_names();
    for thread in ["java", "GC Thread#0", "VM Thread"] {
        assert!(names.contains(thread), "{thread} is not in {names:?}");
    }
    let has = |is: fn(&Line) -> bool| recording.lines.iter().any(is);
    assert!(has(|line| matches!(line, Line::HugePage(page) if page.got && page.order >= 9)));
    assert!(has(|line| matches!(line, Line::Usage(_))) && has(|line| matches!(line, Line::Delays(_))));
    let touched = |line: &Line| matches!(line, Line::Memory(memory) if memory.thp_bytes.0 > 100 << 20);
    assert!(recording.lines.iter().any(touched), "no THP was seen");
    let main_ended =
        |line: &Line| matches!(line, Line::ThreadEnd(end) if end.usage.tid == recording.header.pid);
    assert!(recording.lines.iter().any(main_ended), "the end of its main thread is not recorded");
    drop(folder);
    Ok(())
}

/// Also of a JVM that ends before the last attempt to get one.
fn names_the_missing_log() -> TestResult {
    let (_folder, path, name) = file()?;
    let classes = compiled("Churn", SOURCE)?;
    let java = jdks().first().ok_or("no JDK")?.java.clone();
    let make = || {
        let _ = fs::remove_file(&path);
        let mut command = hugewise(&["record", "-o", &name, "--", "env"]);
        command.arg(&java).args(OPTIONS).args(["-XX:+DisableAttachMechanism", "-cp"]).arg(classes.path());
        command.args(["Churn", "30000"]);
        command
    };
    run_command(&make)?.ended_with(0)?;
    let report: serde_json::Value = serde_json::from_str(&run(&["report", "--json", &name])?.stdout)?;
    let notes = report["recording"]["notes"].as_array().ok_or("no notes")?;
    let is_named =
        |note: &serde_json::Value| note.as_str().is_some_and(|note| note.contains("no log of the JVM"));
    assert!(notes.iter().any(is_named), "{report:#}");
    Ok(())
}

fn attaches_to_a_jvm(jdk: &Jdk) -> TestResult {
    let (_folder, path, name) = file()?;
    // ZGC before JDK 21 maps its heap three times.
    let churning = AllocatingJvm::start(jdk, if knows(jdk, "UseZGC") { "UseZGC" } else { "UseG1GC" })?;
    let pid = churning.pid().to_string();
    assert_eq!(churning.logs()?, 0);
    let mut recorded = None;
    // On a busy machine the JVM takes longer until its heap is filled and was collected.
    for seconds in ["4", "30", "300"] {
        let make = || {
            let _ = fs::remove_file(&path);
            hugewise(&["record", "-o", &name, "--seconds", seconds, &pid])
        };
        run_command(&make)?.ended_with(0)?;
        let recording = Recording::read(&path)?;
        recording.is_complete(EndReason::TimeOver)?;
        let filled = recording.most_of_the_heap() >= Some(100 << 20) && recording.has_pauses().is_ok();
        recorded = Some(recording);
        if filled {
            break;
        }
    }
    let recording = recorded.ok_or("nothing was recorded")?;
    recording.has_pauses()?;
    let is_worker = |name: &&str| name.starts_with("ZWorker") || name.starts_with("GC Thread");
    assert!(!recording.header.started && recording.thread_names().iter().any(is_worker));
    let most = recording.most_of_the_heap().ok_or("the heap was not seen")?;
    assert!((100 << 20..=HEAP + (16 << 20)).contains(&most), "{most} bytes of {HEAP}");
    assert_eq!(churning.logs()?, 0, "the JVM still writes a log");
    churning.end()
}

/// Starts a program that sleeps, and a recording of it; returns the recording first.
fn of_a_sleeper(name: &str) -> Result<(Running, Running), Box<dyn Error>> {
    let sleeper = Running::start(Command::new("sleep").arg("1000"))?;
    let pid = sleeper.child.id().to_string();
    let recording = Running::holding_the_journal(&|| {
        let _ = fs::remove_file(name);
        hugewise(&["record", "-o", name, &pid])
    })?;
    Ok((recording, sleeper))
}

fn is_ended(signal: &str) -> TestResult {
    let (_folder, path, name) = file()?;
    let (recording, mut sleeper) = of_a_sleeper(&name)?;
    has_begun(&path)?;
    recording.signal(signal)?;
    let ran = recording.wait()?.ended_with(0)?;
    says(&ran.stderr, &["RECORDED", "none: no thread waited"])?;
    Recording::read(&path)?.is_complete(EndReason::Interrupted)?;
    assert!(sleeper.child.try_wait()?.is_none(), "the recorded program was ended");
    sleeper.child.kill()?;
    sleeper.wait()?;
    Ok(())
}

/// Settings are applied and restored during a recording, which continues. Delay accounting that another
/// program disables is enabled again, and the gap is reported.
fn no_process_waits() -> TestResult {
    const ACCOUNTING: &str = "/proc/sys/kernel/task_delayacct";
    let (_folder, path, name) = file()?;
    let (recording, mut sleeper) = of_a_sleeper(&name)?;
    has_begun(&path)?;
    run(&["apply", "--pool", "2MiB=+1"])?.ended_with(0)?;
    let restored = run(&["restore"])?.ended_with(0)?;
    let pid = format!("pid {}, record", recording.child.id());
    says(&restored.stdout, &["Restored: pool of 2MiB pages", "A recording is running", &pid])?;
    assert_eq!(fs::read_to_string(ACCOUNTING)?.trim(), "1", "restore took it from the recording");
    fs::write(ACCOUNTING, "0")?;
    wait_until("delay accounting is on again", || Ok(fs::read_to_string(ACCOUNTING)?.trim() == "1"))?;
    recording.signal("TERM")?;
    let ran = recording.wait()?.ended_with(0)?;
    says(&ran.stderr, &["LOST", "some of the delay accounting"])?;
    let lines = Recording::read(&path)?.lines;
    let reported = |line: &Line| matches!(line, Line::Lost(lost) if lost.of == Evidence::Delays && lost.reason.contains("on again"));
    assert!(lines.iter().any(reported), "{lines:#?}");
    assert!(matches!(lines.last(), Some(Line::End(end)) if end.lost_events == Some(0)), "{lines:#?}");
    sleeper.child.kill()?;
    sleeper.wait()?;
    Ok(())
}

fn ends_the_program() -> TestResult {
    let (_folder, path, name) = file()?;
    let recording = Running::holding_the_journal(&|| {
        let _ = fs::remove_file(&name);
        hugewise(&["record", "-o", &name, "--", "sleep", "1000"])
    })?;
    has_begun(&path)?;
    recording.signal("TERM")?;
    recording.wait()?.ended_with(143)?;
    Recording::read(&path)?.is_complete(EndReason::ProcessEnded)
}

fn rights() -> TestResult {
    use std::os::unix::process::CommandExt;
    let (folder, program, temporary) = accessible_copy()?;
    let (name, over) = (temporary.join("a.rec"), folder.path().join("over"));
    let script = "until [ -e \"$0\" ]; do sleep 0.1; done; exit 4";
    let mut command = Command::new(&program);
    command.arg("record").arg("-o").arg(&name).args(["--", "sh", "-c", script]).arg(&over);
    command.current_dir("/").env("TMPDIR", &temporary).uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    let recording = Running::start(&mut command)?;
    // Without rights a program that ends between two samples is not recorded.
    let sampled = has_line(&name, |line| matches!(line, Line::Thread(thread) if thread.name == "sh"));
    File::create(&over)?;
    let ran = recording.wait()?.ended_with(4)?;
    sampled?;
    let lacks =
        ["without kernel events", "without delay accounting", "CAP_DAC_OVERRIDE", "STALLS      unknown"];
    says(&ran.stderr, &lacks)?;
    let recording = Recording::read(&name)?;
    assert_eq!(recording.ending, Some(Ending::Whole));
    for evidence in [Evidence::Events, Evidence::Delays, Evidence::Ends] {
        assert!(recording.header.evidence[&evidence].reason().is_some(), "{:#?}", recording.header.evidence);
    }
    assert!(recording.header.evidence[&Evidence::Counters].known().is_some());
    assert!(recording.thread_names().contains("sh"));
    fs::remove_file(&name)?;
    assert_eq!(fs::read_dir(&temporary)?.count(), 0, "temporary files were left behind");
    Ok(())
}

fn refusals() -> TestResult {
    let (_folder, path, name) = file()?;
    let no_one = run_command(&|| hugewise(&["record", "-o", &name, "4194303"]))?.ended_with(2)?;
    says(&no_one.stderr, &["there is no process 4194303"])?;
    let nothing =
        run_command(&|| hugewise(&["record", "-o", &name, "--", "/nowhere/at-all"]))?.ended_with(2)?;
    says(&nothing.stderr, &["/nowhere/at-all could not be started", "No such file"])?;
    assert!(!path.exists(), "a recording of nothing is there");
    File::create(&path)?;
    let there = run_command(&|| hugewise(&["record", "-o", &name, "--", "true"]))?.ended_with(2)?;
    says(&there.stderr, &["File exists"])
}
