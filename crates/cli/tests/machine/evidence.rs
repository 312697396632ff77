//! All commands use the same sampling: on an idle process, `run`, `compare`, `inspect`, `collapse --dry-run`
//! and `record` report the same heap, to the page. The JVMs and the backings take turns with the collectors; each
//! collector of each JVM is sampled on each backing only in a full run.

use std::{
    error::Error,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use hugewise_evidence::observation::{Observer, RegionOfInterest};
use hugewise_jvm::gc_log;
use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    root::Root,
    units::{Bytes, PageSize, Pages},
};
use hugewise_record::recording::{Line, Reader};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    needs::Need::{Java, Pool, Root as Rights, Thp},
    plan::{COLLECTORS, compiled, javas, knows, with_pool},
    report::SharedMemory,
    represents, skip,
    start::{MARKER, hugewise, run, wait_until},
    trial,
};

const BACKINGS: [&str; 3] = ["base", "thp", "hugetlb"];
const HEAP: [&str; 3] = ["-Xms128m", "-Xmx128m", "-XX:+AlwaysPreTouch"];
const UNLOCK: [&str; 2] = ["-XX:+UnlockExperimentalVMOptions", "-XX:+UnlockDiagnosticVMOptions"];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let javas = javas();
    for (j, java) in javas.iter().enumerate() {
        let known = COLLECTORS.into_iter().enumerate().filter(|(_, collector)| knows(java, collector));
        for (c, collector) in known {
            for (b, backing) in BACKINGS.into_iter().enumerate() {
                let name = format!("evidence: {} {collector} on {backing}", java.display());
                // The ZGC of JDK 11 cannot be kept from unmapping memory while the JVM is idle.
                if collector == "UseZGC" && !knows(java, "ZUncommit") {
                    let why = "the heap of this ZGC changes while the JVM is idle".to_owned();
                    trials.push(Trial::new(name, Some(why), || Ok(())));
                    continue;
                }
                let java = java.clone();
                let needs = [Rights, Pool, Thp, Java];
                let sampled = trial(&name, &needs, move || counted_alike(&java, collector, backing));
                let represents = represents(j, javas.len(), c) && represents(b, BACKINGS.len(), j + c);
                trials.push(sampled.representing(represents));
            }
        }
    }
    trials
}

fn counted_alike(java: &Path, collector: &str, backing: &str) -> TestResult {
    let class = compiled()?;
    let _shared = SharedMemory::on_thp()?;
    let line = launch_line(java, collector, &class)?;
    if backing != "hugetlb" {
        return sampled_alike(&line, backing);
    }
    let words: Vec<&str> = line.iter().map(String::as_str).collect();
    let planned = run(&[&["plan", "--json", "--backing", "hugetlb", "--"], &words[..]].concat())?;
    let planned: Value = serde_json::from_str(&planned.ended_with(0)?.stdout)?;
    let needed = planned["pools"][0]["pages_needed"].as_u64().ok_or("no pool is planned")?;
    let size = PageSizes::read(&Root::live())?.default_hugetlb.ok_or("no default size")?;
    with_pool(size, Pages(needed), || sampled_alike(&line, backing))
}

fn launch_line(java: &Path, collector: &str, class: &TempDir) -> Result<Vec<String>, Box<dyn Error>> {
    let class_path = class.path().to_str().ok_or("a path that is not UTF-8")?.to_owned();
    let mut line = vec![java.to_str().ok_or("a path that is not UTF-8")?.to_owned()];
    line.extend(UNLOCK.into_iter().chain(HEAP).map(str::to_owned));
    line.push(format!("-XX:+{collector}"));
    if collector == "UseZGC" {
        // Prevents collections and releases of memory while the JVM is idle.
        line.extend(["-XX:-ZProactive", "-XX:-ZUncommit"].map(str::to_owned));
    }
    line.push(gc_log::log_option(&class.path().join("gc.log")));
    line.extend(["-cp".to_owned(), class_path, "Stay".to_owned()]);
    Ok(line)
}

/// The heap of a JVM, as one command reports it.
#[derive(Clone, Debug, PartialEq)]
struct Heap {
    resident: Bytes,
    huge: Bytes,
    /// Why its base pages are no huge pages; `None` if the command does not report it.
    reason: Option<String>,
}

fn sampled_alike(line: &[String], backing: &str) -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.json");
    let mut jvm = IdleJvm::start(line, backing, &file)?;
    // Both take seconds, in which the JVM is idle.
    let (by_run, by_record) = thread::scope(|scope| {
        let recorder = scope.spawn(|| recorded(jvm.pid(), folder.path()).map_err(|error| error.to_string()));
        (jvm.report(&file), recorder.join())
    });
    let (by_run, by_record) = (by_run?, by_record.map_err(|_| "a panic during the recording")??);
    let root = Root::live();
    let log = line.iter().find_map(|word| word.split_once("file=")?.1.split(':').next()).ok_or("no log")?;
    let thp = PageSizes::read(&root)?.thp;
    let by_compare = || -> Result<Heap, Box<dyn Error>> {
        let mut observer = Observer::new(&root, RegionOfInterest::JavaHeap(log.into()), thp);
        observer.sample(jvm.pid());
        let seen = observer.coverage.ok_or("compare sampled no heap")?;
        Ok(Heap { resident: seen.resident, huge: seen.huge.values().copied().sum(), reason: None })
    };
    let first = inspected(jvm.pid())?;
    let all = [
        ("run", by_run),
        ("compare", by_compare()?),
        ("collapse --dry-run", collapsed(jvm.pid())?),
        ("record", by_record),
    ];
    let last = inspected(jvm.pid())?;
    jvm.end()?;
    // Serial does not pre-touch a heap on pages of a pool.
    let untouched = backing == "hugetlb" && line.iter().any(|word| word == "-XX:+UseSerialGC");
    let least = if untouched { Bytes(1 << 20) } else { Bytes(100 << 20) };
    assert!(first.resident >= least, "{first:?} of a heap of 128 MiB");
    assert_eq!(first, last, "the heap of the JVM changed during the test");
    match backing {
        "base" => assert_eq!(first.huge, Bytes::ZERO, "{first:?}"),
        "thp" if first.huge == Bytes::ZERO => return skip("the kernel had no free huge page for the heap"),
        "thp" => {}
        _ => assert_eq!(first.huge, first.resident, "{first:?}"),
    }
    for (command, counted) in all {
        let same_reason =
            counted.reason.is_none() || first.reason.is_none() || counted.reason == first.reason;
        assert!(same_reason, "{command}: {counted:?}; inspect: {first:?}");
        assert_eq!(Heap { reason: first.reason.clone(), ..counted }, first, "{command}, and inspect");
    }
    Ok(())
}

fn inspected(pid: u32) -> Result<Heap, Box<dyn Error>> {
    let ran = run(&["inspect", "--json", &pid.to_string()])?.ended_with(0)?;
    let document: Value = serde_json::from_str(&ran.stdout)?;
    let heap = document["regions"].as_array().into_iter().flatten();
    let base = PageSizes::read(&Root::live())?.base;
    let mut counted = Heap { resident: Bytes::ZERO, huge: Bytes::ZERO, reason: None };
    for region in heap.filter(|region| region["name"] == "heap") {
        let above = bytes(&region["counted_above_bytes"]);
        counted.resident += bytes(&region["resident_bytes"]).saturating_sub(above);
        let huge = region["bytes_by_page_size"].as_object().into_iter().flatten();
        let huge = huge.filter(|(size, _)| size.parse::<PageSize>().is_ok_and(|size| size > base));
        let huge: Bytes = huge.map(|(_, value)| bytes(value)).sum();
        counted.huge += if huge > Bytes::ZERO { huge.saturating_sub(above) } else { huge };
        counted.reason = counted.reason.or(region["reason"].as_str().map(str::to_owned));
    }
    Ok(counted)
}

fn collapsed(pid: u32) -> Result<Heap, Box<dyn Error>> {
    let ran = run(&["collapse", "--dry-run", "--json", "--region", "heap", &pid.to_string()])?;
    let document: Value = serde_json::from_str(&ran.stdout).map_err(|error| format!("{error}: {ran:#?}"))?;
    let heap = document["regions"].as_array().into_iter().flatten().find(|region| region["name"] == "heap");
    let heap = heap.ok_or_else(|| format!("collapse found no heap: {document:#}"))?;
    let reasons: Vec<&String> =
        heap["skipped_bytes"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
    let all_skipped = bytes(&heap["candidates"]["resident_bytes"]) == Bytes::ZERO;
    Ok(Heap {
        resident: bytes(&heap["resident_before_bytes"]),
        huge: bytes(&heap["huge_before_bytes"]),
        // Memory on pages of a pool is skipped because it is on huge pages already.
        reason: match reasons[..] {
            [reason] if all_skipped && reason != "pool" => Some(reason.clone()),
            _ => None,
        },
    })
}

fn recorded(pid: u32, folder: &Path) -> Result<Heap, Box<dyn Error>> {
    let file = folder.join("still.rec");
    let name = file.display().to_string();
    let line = ["record", "--no-jvm-log", "--seconds", "2", "-o", &name, &pid.to_string()];
    run(&line)?.ended_with(0)?;
    let heaps = Reader::open(&file)?.filter_map(|line| match line {
        Ok(Line::Memory(memory)) if memory.pid == pid => memory.heap,
        _ => None,
    });
    let last = heaps.last().ok_or("record sampled no heap")?;
    Ok(Heap { resident: last.resident_bytes, huge: last.huge_bytes, reason: None })
}

fn bytes(value: &Value) -> Bytes {
    Bytes(value.as_u64().unwrap_or_default())
}

/// A JVM started by `hugewise run`, which runs until its standard input is closed.
struct IdleJvm(Child);

impl IdleJvm {
    fn start(line: &[String], backing: &str, report: &Path) -> Result<IdleJvm, Box<dyn Error>> {
        let mut command: Command = hugewise(&["run", "--no-cache", "--backing", backing, "--report"]);
        command.arg(report).arg("--").args(line).env(MARKER, std::process::id().to_string());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut held = IdleJvm(child);
        let output = held.0.stdout.take().ok_or("no output")?;
        let started = BufReader::new(output).lines().any(|line| line.is_ok_and(|line| line == "started"));
        if started { Ok(held) } else { Err(format!("the JVM did not start: {:?}", held.end()).into()) }
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn report(&self, file: &Path) -> Result<Heap, Box<dyn Error>> {
        let read = || serde_json::from_reader::<_, Value>(File::open(file).ok()?).ok();
        wait_until("the report of 'hugewise run'", || Ok(read().is_some()))?;
        let report = read().ok_or("no report")?;
        let regions = report["regions"].as_array().into_iter().flatten();
        let mut heaps = regions.filter(|region| region["name"] == "heap");
        let heap = heaps.next().ok_or_else(|| format!("run found no heap: {report:#}"))?;
        assert!(heaps.next().is_none() && report["outcome"] == "ready", "{report:#}");
        let resident = bytes(&heap["resident_bytes"]);
        let coverage = heap["coverage"].as_f64().ok_or("no coverage")?;
        let huge = heap["bytes_by_page_size"].as_object().into_iter().flatten();
        let base = PageSizes::read(&Root::live())?.base;
        let huge = huge.filter(|(size, _)| size.parse::<PageSize>().is_ok_and(|size| size > base));
        let huge: Bytes = huge.map(|(_, value)| bytes(value)).sum();
        assert_eq!(huge.share_of(resident), Some(coverage), "{heap:#}");
        Ok(Heap { resident, huge, reason: heap["reason"].as_str().map(str::to_owned) })
    }

    fn end(&mut self) -> TestResult {
        drop(self.0.stdin.take());
        let ended = self.0.wait()?;
        if ended.success() { Ok(()) } else { Err(ended.to_string().into()) }
    }
}

impl Drop for IdleJvm {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
