//! `inspect`: regions populated by the test itself, to the byte; and processes that cannot be read.

use std::{
    error::Error,
    fs,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{self, Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use hugewise_changes::journal::{Journal, JournalError, STATE_DIR};
use hugewise_linux::{
    root::Root,
    settings::{Knob, Setting},
    sys::memory::{Advice, Mapping},
    units::{Bytes, PageSize},
};
use serde_json::Value;

use crate::{
    TestResult, Trial,
    needs::Need::{Jdk, Pool, Root as NeedsRoot, Thp},
    settings::MAX_WAIT_TIME,
    skip,
    start::{EndedProcess, hugewise, run, run_command, says},
    trial,
    without::{UNPRIVILEGED, accessible_copy},
};

const MIB: u64 = 1 << 20;

pub fn trials() -> Vec<Trial> {
    let needs = [NeedsRoot, Pool, Thp];
    vec![
        trial("inspect: own regions of each backing, to the byte", &needs, own_regions),
        trial("inspect: advice that came too late, or never", &needs, reasons),
        trial("inspect: processes that cannot be read, each with the reason", &[NeedsRoot], unknown),
        trial("inspect: another user's process, and one's own", &[NeedsRoot], unprivileged),
        trial("inspect: a heap that is mapped three times is counted once", &[NeedsRoot, Jdk(17)], views),
        trial("inspect --watch: runs until it is interrupted", &[], watch),
        trial("inspect --all and --cgroup: this process among them", &[], all_and_cgroup),
    ]
}

/// Opens the journal; waits while another process has it.
pub fn journal() -> Result<Journal, JournalError> {
    let begin = Instant::now();
    loop {
        match Journal::open(&Root::live(), Path::new(STATE_DIR), "tests of inspect") {
            Err(JournalError::Busy(_) | JournalError::Unfinished(_)) if begin.elapsed() < MAX_WAIT_TIME => {
                thread::sleep(Duration::from_millis(100));
            }
            opened => return opened,
        }
    }
}

/// Adds `pages` to the pool of 2 MiB pages.
pub fn grow_pool(journal: &mut Journal, pages: u64) -> TestResult {
    let pool = Setting::Pool { page_size: "2m".parse()?, node: None };
    let now: u64 = pool.read(&Root::live())?.parse()?;
    let got: u64 = journal.set(pool, &(now + pages).to_string())?.parse()?;
    if got < now + pages { Err(format!("the pool could not grow by {pages} pages").into()) } else { Ok(()) }
}

fn inspect(pid: u32) -> Result<Value, Box<dyn Error>> {
    let ran = run(&["inspect", &pid.to_string(), "--json"])?.ended_with(0)?;
    Ok(serde_json::from_str(&ran.stdout)?)
}

/// The region that starts with this mapping.
fn region<'a>(inspected: &'a Value, mapping: &Mapping) -> Result<&'a Value, Box<dyn Error>> {
    let regions = inspected["regions"].as_array().ok_or("no regions")?;
    let found = regions.iter().find(|region| region["start"].as_u64() == Some(mapping.address()));
    found.ok_or_else(|| format!("no region begins at {:x}: {regions:#?}", mapping.address()).into())
}

fn on(region: &Value, size: &str) -> u64 {
    region["bytes_by_page_size"][size].as_u64().unwrap_or(0)
}

/// A mapping that the kernel does not merge with its neighbours, which have other advice.
struct IsolatedMapping {
    mapping: Mapping,
    _neighbours: Vec<Mapping>,
}

impl std::ops::Deref for IsolatedMapping {
    type Target = Mapping;
    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

fn isolated_mapping(bytes: u64, advice: Option<Advice>) -> Result<IsolatedMapping, Box<dyn Error>> {
    let neighbour = || -> Result<Mapping, Box<dyn Error>> {
        let other = if advice == Some(Advice::NoHugePage) { Advice::HugePage } else { Advice::NoHugePage };
        let mapping = Mapping::anonymous(Bytes(64 << 10))?;
        mapping.advise(0..64 << 10, other)?;
        Ok(mapping)
    };
    let mut neighbours = vec![neighbour()?];
    let mapping = Mapping::anonymous(Bytes(bytes))?;
    if let Some(advice) = advice {
        mapping.advise(0..mapping.len(), advice)?;
    }
    // The kernel aligns large mappings, and places later mappings in the gaps beside them.
    let all = mapping.addresses(&(0..mapping.len()));
    let touches = |neighbours: &[Mapping], edge| {
        let of = |one: &Mapping| one.addresses(&(0..one.len()));
        neighbours.iter().any(|one| of(one).start == edge || of(one).end == edge)
    };
    while neighbours.len() < 200 && !(touches(&neighbours, all.start) && touches(&neighbours, all.end)) {
        neighbours.push(neighbour()?);
    }
    Ok(IsolatedMapping { mapping, _neighbours: neighbours })
}

fn own_regions() -> TestResult {
    let mut journal = journal()?;
    let small: PageSize = "64k".parse()?;
    let mthp = Setting::ThpEnabled { page_size: Some(small) };
    let has_mthp = Path::new("/").join(mthp.path()).exists();
    grow_pool(&mut journal, 3)?;
    journal.set(Setting::ThpEnabled { page_size: None }, "madvise")?;

    let base = isolated_mapping(8 * MIB, Some(Advice::NoHugePage))?;
    base.advise(0..5 << 20, Advice::PopulateWrite)?;

    let thp = isolated_mapping(10 * MIB, Some(Advice::HugePage))?;
    let aligned = (thp.address().next_multiple_of(2 * MIB) - thp.address()) as usize;
    thp.advise(aligned..aligned + (6 << 20), Advice::PopulateWrite)?;

    let pool = Mapping::hugetlb(Bytes(6 * MIB), "2m".parse()?)?;
    pool.advise(0..4 << 20, Advice::PopulateWrite)?;

    let folios = isolated_mapping(4 * MIB, None)?;
    if has_mthp {
        journal.set(mthp, "always")?;
        folios.advise(0..4 << 20, Advice::PopulateWrite)?;
    }

    let inspected = inspect(process::id())?;
    let seen = region(&inspected, &base)?;
    assert_eq!((on(seen, "4096"), &seen["resident_bytes"]), (5 * MIB, &(5 * MIB).into()), "{seen:#}");
    assert_eq!(seen["reason"], "off_here", "{seen:#}");

    let seen = region(&inspected, &thp)?;
    assert_eq!(seen["resident_bytes"].as_u64(), Some(6 * MIB), "{seen:#}");
    assert_eq!(on(seen, "2097152") + on(seen, "4096"), 6 * MIB, "{seen:#}");
    assert!(on(seen, "2097152") == 6 * MIB || !seen["reason"].is_null(), "{seen:#}");

    let seen = region(&inspected, &pool)?;
    assert_eq!(seen["hugetlb_bytes"].as_u64(), Some(4 * MIB), "{seen:#}");
    assert_eq!((on(seen, "2097152"), &seen["reason"]), (4 * MIB, &Value::Null), "{seen:#}");

    if has_mthp {
        let seen = region(&inspected, &folios)?;
        assert_eq!(seen["resident_bytes"].as_u64(), Some(4 * MIB), "{seen:#}");
        // The ends may not be aligned.
        assert!(on(seen, "65536") >= 3 * MIB, "{seen:#}");
    }
    let totals = &inspected["totals"];
    let by_size = totals["bytes_by_page_size"].as_object().ok_or("no sizes")?;
    let sum: u64 = by_size.values().filter_map(Value::as_u64).sum();
    assert_eq!(totals["resident_bytes"].as_u64(), Some(sum), "{totals:#}");
    Ok(())
}

/// Sets the THP mode `madvise`, in which khugepaged does not collapse memory while a test inspects it: the mode
/// `never` ends it, and a new one examines a single page of the first process before it sleeps.
fn madvise_without_khugepaged(journal: &mut Journal) -> Result<(), JournalError> {
    journal.set(Setting::ThpEnabled { page_size: None }, "never")?;
    journal.set(Setting::Khugepaged { knob: Knob::PagesToScan }, "1")?;
    journal.set(Setting::Khugepaged { knob: Knob::ScanSleepMillisecs }, "600000")?;
    journal.set(Setting::ThpEnabled { page_size: None }, "madvise")?;
    Ok(())
}

fn reasons() -> TestResult {
    let mut journal = journal()?;
    madvise_without_khugepaged(&mut journal)?;
    let (never, late) = (isolated_mapping(8 * MIB, None)?, isolated_mapping(8 * MIB, None)?);
    never.advise(0..8 << 20, Advice::PopulateWrite)?;
    late.advise(0..8 << 20, Advice::PopulateWrite)?;
    late.advise(0..8 << 20, Advice::HugePage)?;
    let inspected = inspect(process::id())?;
    let seen = region(&inspected, &never)?;
    assert_eq!(seen["reason"], "never_advised", "{seen:#}");
    says(seen["detail"].as_str().unwrap_or_default(), &["THP mode is madvise", "enabled"])?;
    let seen = region(&inspected, &late)?;
    // Several causes are possible; only counters of zero exclude some.
    let reported = seen["reason"].as_str().unwrap_or_default();
    assert!(["eligible", "advised_after_touch"].contains(&reported), "{seen:#}");
    if reported == "eligible" {
        assert!(seen["candidates"].as_array().is_some_and(|all| all.contains(&"advised_after_touch".into())));
    }
    journal.set(Setting::ThpEnabled { page_size: None }, "never")?;
    let inspected = inspect(process::id())?;
    assert_eq!(region(&inspected, &late)?["reason"], "off_globally");
    Ok(())
}

fn unknown() -> TestResult {
    let mut gone = Command::new("true").spawn()?;
    gone.wait()?;
    let mut zombie = Command::new("true").spawn()?;
    let begin = Instant::now();
    let state = format!("/proc/{}/stat", zombie.id());
    while !fs::read_to_string(&state)?.contains(") Z ") && begin.elapsed() < MAX_WAIT_TIME {
        thread::sleep(Duration::from_millis(2));
    }
    let ids = [process::id(), zombie.id(), gone.id(), 2].map(|pid| pid.to_string());
    let arguments: Vec<&str> =
        ["inspect", "--json"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    let ran = run(&arguments)?.ended_with(1)?;
    let reported: Vec<Value> = ran.stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!(reported.len(), 4, "{}", ran.stdout);
    assert!(reported[0]["regions"].as_array().is_some_and(|regions| !regions.is_empty()));
    let obstacles: Vec<_> = reported[1..].iter().filter_map(|reported| reported["cause"].as_str()).collect();
    // Process 2 is kthreadd, but in a container any process, or none.
    assert_eq!(&obstacles[..2], ["zombie", "no_process"]);
    let text = run(&["inspect", &ids[1], &ids[2]])?.ended_with(2)?;
    says(&text.stdout, &["is a zombie", "there is no process"])?;
    zombie.wait()?;
    Ok(())
}

fn unprivileged() -> TestResult {
    let (_folder, program, _temporary) = accessible_copy()?;
    let as_no_process = |pid: u32| -> Result<EndedProcess, Box<dyn Error>> {
        let make = || {
            let mut command = Command::new(&program);
            command.args(["inspect", &pid.to_string(), "--json"]).current_dir("/");
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
            command
        };
        run_command(&make)
    };
    let ran = as_no_process(process::id())?.ended_with(2)?;
    let reported: Value = serde_json::from_str(&ran.stdout)?;
    assert_eq!(reported["cause"], "not_allowed", "{reported:#}");
    says(reported["detail"].as_str().unwrap_or_default(), &["uid 0", "CAP_SYS_PTRACE", "smaps"])?;

    let mut own = Command::new("sleep").arg("100").uid(UNPRIVILEGED).gid(UNPRIVILEGED).spawn()?;
    // Before the exec of `sleep`, the process is a copy of the test.
    let begin = Instant::now();
    while fs::read_to_string(format!("/proc/{}/comm", own.id()))?.trim() != "sleep"
        && begin.elapsed() < MAX_WAIT_TIME
    {
        thread::sleep(Duration::from_millis(2));
    }
    let ran = as_no_process(own.id());
    own.kill()?;
    own.wait()?;
    let reported: Value = serde_json::from_str(&ran?.ended_with(0)?.stdout)?;
    let reason = reported["unknown"]["folio_sizes"].as_str().unwrap_or_default();
    says(reason, &["CAP_SYS_ADMIN"])?;
    assert!(reported["totals"]["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{reported:#}");
    assert!(reported["regions"].as_array().is_some_and(|all| all.iter().all(|r| r["split_bytes"].is_null())));
    Ok(())
}

/// A running JVM, killed when dropped.
pub struct Jvm {
    pub child: Child,
    _folder: tempfile::TempDir,
}

impl Jvm {
    /// Starts the newest JDK, or the one with this major version, and waits until its `main` runs.
    pub fn start(major: Option<u32>, options: &[&str]) -> Result<Jvm, Box<dyn Error>> {
        let jdks = crate::needs::jdks();
        let jdk =
            jdks.iter().find(|jdk| major.is_none_or(|major| jdk.major == major)).ok_or("no such JDK")?;
        let folder = tempfile::tempdir()?;
        let source = folder.path().join("Wait.java");
        fs::write(
            &source,
            "public class Wait { public static void main(String[] a) throws Exception {
                System.out.println(\"up\"); System.out.flush(); Thread.sleep(600_000); } }",
        )?;
        let mut command = Command::new(jdk.home.join("bin/java"));
        command.args(options).arg(&source).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut jvm = Jvm { child: command.spawn()?, _folder: folder };
        let mut said = String::new();
        let stdout = jvm.child.stdout.take().ok_or("no output")?;
        // Messages about options may precede it.
        let mut lines = BufReader::new(stdout);
        while said.trim() != "up" {
            said.clear();
            if lines.read_line(&mut said)? == 0 {
                return Err("the JVM did not come up".into());
            }
        }
        Ok(jvm)
    }

    /// Stops all threads, so that two programs read the same state.
    pub fn stop(&self) -> TestResult {
        let id = self.child.id().to_string();
        Command::new("sh").args(["-c", "kill -s STOP \"$0\"", &id]).status()?;
        let begin = Instant::now();
        let stopped = || -> Result<bool, Box<dyn Error>> {
            for thread in fs::read_dir(format!("/proc/{id}/task"))? {
                let stat = fs::read_to_string(thread?.path().join("stat"))?;
                if !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T")) {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        while !stopped()? {
            if begin.elapsed() > MAX_WAIT_TIME {
                return Err("the JVM did not stop".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn views() -> TestResult {
    // Non-generational ZGC maps its heap three times up to JDK 20.
    let options = ["-XX:+UseZGC", "-Xms128m", "-Xmx128m", "-XX:+AlwaysPreTouch"];
    let jvm = Jvm::start(Some(17), &options)?;
    jvm.stop()?;
    let inspected = inspect(jvm.child.id())?;
    let regions = inspected["regions"].as_array().ok_or("no regions")?;
    let sum = |field: &str| regions.iter().filter_map(|region| region[field].as_u64()).sum::<u64>();
    let again = sum("counted_above_bytes");
    assert!(again >= 64 * MIB, "{again} bytes are seen as mapped again");
    let total = inspected["totals"]["resident_bytes"].as_u64();
    assert_eq!(total, Some(sum("resident_bytes") - again));
    // The kernel's sum counts each mapping.
    let status = fs::read_to_string(format!("/proc/{}/smaps_rollup", jvm.child.id()))?;
    let rss =
        status.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB")?.parse().ok());
    assert_eq!(Some(sum("resident_bytes") >> 10), rss, "all views together are the kernel's sum");
    Ok(())
}

fn watch() -> TestResult {
    let mut command = hugewise(&["inspect", &process::id().to_string(), "--json", "--watch", "0.1"]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    for _ in 0..2 {
        let line = lines.next().ok_or("it ended by itself")??;
        assert_eq!(serde_json::from_str::<Value>(&line)?["pid"].as_u64(), Some(process::id().into()));
    }
    Command::new("sh").args(["-c", "kill -s INT \"$0\"", &child.id().to_string()]).status()?;
    for line in lines {
        serde_json::from_str::<Value>(&line?)?;
    }
    assert_eq!(child.wait()?.code(), Some(0));
    Ok(())
}

fn all_and_cgroup() -> TestResult {
    let own = |text: &str| -> Result<bool, Box<dyn Error>> {
        let reported: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(reported.iter().any(|reported| {
            reported["pid"].as_u64() == Some(process::id().into())
                && reported["totals"]["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 0)
        }))
    };
    assert!(own(&run(&["inspect", "--all", "--json"])?.ended_with(0)?.stdout)?);
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let group = groups.lines().next().and_then(|line| line.splitn(3, ':').nth(2)).ok_or("no group")?;
    let ran = run(&["inspect", "--cgroup", group, "--json"])?;
    // An error if no cgroup hierarchy is mounted.
    if ran.status.code() == Some(2) {
        says(&ran.stderr, &["control group", "does not exist"])?;
        return skip("no control group hierarchy is mounted");
    }
    assert!(
        own(&ran.stdout)? || ran.stdout.contains(&format!("\"pid\": {}", process::id())),
        "{}",
        ran.stdout
    );
    Ok(())
}
