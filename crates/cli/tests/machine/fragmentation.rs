//! `bench stall` and `compare --fragmented`: no huge page can be made of the fragmented memory, and all of it
//! is released.

use std::{
    collections::BTreeMap,
    error::Error,
    fs::{self, File},
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    interrupt::Interrupt,
    pages::frames,
    proc::smaps,
    root::Root,
    units::{Bytes, PageSize},
};
use hugewise_measure::{
    execution::Launch,
    fragmentation::{
        FragmentationOutcome, Fragmenter, Held, Plan, State,
        worker::{self, WorkerMessage},
    },
};

use crate::{
    TestResult, Trial,
    killed::{Moment, kill_many},
    needs::Need::{Fragment, Free, Root as Rights, Thp},
    settings::{JOURNAL, Snapshot},
    skip,
    start::{INCONCLUSIVE, MARKER, Running, hugewise, kill_programs, run, run_command, says},
    trial,
};

/// Memory that the small tests fragment, an amount that is free on small machines.
const SHARE: &str = "256MiB";

pub fn trials() -> Vec<Trial> {
    let small = [Rights, Thp, Free(1024)];
    let mut trials = vec![
        trial("bench stall: compaction does not restore fragmented blocks", &small, cannot_be_moved),
        trial("bench stall: without a command", &small, load),
        trial("bench stall: with a command", &small, command),
        trial("bench stall: impossible sizes are refused", &[Thp], refusals),
        trial("bench stall: SIGKILL at any moment releases the memory", &small, killed),
    ];
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let name = format!("bench stall: SIG{signal} releases the memory");
        trials.push(trial(&name, &small, move || is_ended(signal, status)));
    }
    trials.push(trial("bench stall: the whole machine", &[Rights, Thp, Fragment], whole_machine));
    trials.push(trial("compare --fragmented: the whole machine", &[Rights, Thp, Fragment], comparison));
    trials
}

/// Fragments the memory of the whole machine until the result is dropped.
pub fn fragment_machine(left: Bytes) -> Result<Held, Box<dyn Error>> {
    let root = Root::live();
    let sizes = PageSizes::read(&root)?;
    let program = env!("CARGO_BIN_EXE_hugewise").into();
    let environment = vec![(MARKER.to_owned(), Some(std::process::id().to_string().into()))];
    let environment = Launch { environment, ..Launch::default() };
    let fragmenter = Fragmenter { program, root, sizes, asked: Some(left), share: false, environment };
    Ok(fragmenter.fragment(&Interrupt::default(), &mut |_, _| {})?)
}

/// The end of a test during which the memory was no longer fragmented.
pub fn released() -> TestResult {
    skip("other programs needed memory: the kernel ended the process that fragments it")
}

/// The process that fragments memory, started without `bench stall`.
struct Worker(Child);

impl Worker {
    fn start(plan: &Plan) -> Result<(Worker, FragmentationOutcome), Box<dyn Error>> {
        let launch = worker::launch(env!("CARGO_BIN_EXE_hugewise").as_ref(), plan);
        let mut command = Command::new(&launch.command[0]);
        command.args(&launch.command[1..]).env(MARKER, std::process::id().to_string());
        let mut worker = Worker(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let output = worker.0.stdout.take().ok_or("no output")?;
        for line in BufReader::new(output).lines() {
            match serde_json::from_str(&line?)? {
                WorkerMessage::Filled(_) => {}
                WorkerMessage::Ready(outcome) => return Ok((worker, *outcome)),
                WorkerMessage::Failed(reason) => return Err(reason.into()),
            }
        }
        Err("it ended without a result".into())
    }

    /// Page frame numbers of its anonymous memory, by address.
    fn frames(&self, base: PageSize) -> Result<BTreeMap<u64, u64>, Box<dyn Error>> {
        let id = self.0.id().to_string();
        let pagemap = File::open(format!("/proc/{id}/pagemap"))?;
        let mut all = BTreeMap::new();
        for vma in smaps::read(&Root::live(), &id)?.iter().filter(|vma| vma.is_anonymous()) {
            frames::visit(&pagemap, vma.addresses.clone(), base, |page| {
                all.extend(page.frame.map(|frame| (page.address, frame)));
            })?;
        }
        Ok(all)
    }

    /// Closes its standard input, as the end of hugewise does.
    fn end(mut self) -> TestResult {
        drop(self.0.stdin.take());
        assert!(self.0.wait()?.success());
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cannot_be_moved() -> TestResult {
    let root = Root::live();
    let sizes = PageSizes::read(&root)?;
    let thp = sizes.thp.ok_or("no THP")?;
    let pages = thp.bytes().0 / sizes.base.bytes().0;
    let plan = Plan::of_a_share(SHARE.parse()?, &State::read(&root, &sizes)?);
    let (worker, outcome) = Worker::start(&plan)?;
    assert_eq!(outcome.filled, plan.taken, "{outcome:#?}");
    assert!(outcome.left >= plan.left && outcome.every_block_pinned, "{outcome:#?}");
    assert!(outcome.pinned >= outcome.blocks, "{outcome:#?}");
    let score = fs::read_to_string(format!("/proc/{}/oom_score_adj", worker.0.id()))?;
    assert_eq!(score.trim(), "1000", "the OOM killer would end other programs first");
    // The last page of each block that was split.
    let lasts = |frames: &BTreeMap<u64, u64>| -> BTreeMap<u64, u64> {
        let is_last = |(_, frame): &(&u64, &u64)| *frame % pages == pages - 1;
        frames.iter().filter(is_last).map(|(address, frame)| (*address, *frame)).collect()
    };
    let before = worker.frames(sizes.base)?;
    let blocks: std::collections::BTreeSet<u64> =
        lasts(&before).values().map(|frame| frame / pages).collect();
    assert!(blocks.len() as u64 >= outcome.blocks.0, "{} of {outcome:#?}", blocks.len());
    fs::write("/proc/sys/vm/compact_memory", "1")?;
    let after = worker.frames(sizes.base)?;
    let moved = lasts(&before).iter().filter(|(address, frame)| after.get(address) != Some(frame)).count();
    // In memory that was fragmented before, the pinned page may be another one than the last of its block.
    let may_move = lasts(&before).len() as u64 - outcome.blocks.0;
    assert!(moved as u64 <= may_move, "{moved} pages were moved, {may_move} may be: {outcome:#?}");
    worker.end()
}

fn stall(more: &[&str]) -> Command {
    hugewise(&[&["bench", "stall", "--share", "--memory", SHARE], more].concat())
}

fn load() -> TestResult {
    let ran = run_command(&|| stall(&["--json"]))?;
    let report: serde_json::Value = serde_json::from_str(&ran.stdout)?;
    assert_eq!(report["schema"], "hugewise.stall/2");
    // Allocations by other programs during the test may keep blocks occupied.
    let came_back = ran.status.code() == Some(0);
    assert!(came_back || report["returned"]["compacted"].is_string(), "{ran:#?}");
    for when in ["before", "fragmented"] {
        let probe = &report["probes"][when];
        assert_eq!(probe["bytes"], Bytes(128 << 20).0, "{report:#}");
        let reported = probe["compaction"]["count"].is_u64() || probe["unknown"]["compaction"].is_string();
        assert!(reported && probe["coverage"].is_f64(), "{report:#}");
    }
    assert_eq!((&report["held_to_the_end"], &report["program"]), (&true.into(), &serde_json::Value::Null));
    let text = run_command(&|| stall(&[]))?.stdout;
    says(&text, &["FRAGMENTED", "MODE", "defrag", "direct compaction", "VERDICT", "RELEASED", "ACTIONS"])
}

fn command() -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("a.rec").display().to_string();
    let script = "echo its own; exit 3";
    let make = || {
        let _ = fs::remove_file(&file);
        stall(&["-o", &file, "--", "sh", "-c", script])
    };
    let ran = run_command(&make)?.ended_with(3)?;
    assert_eq!(ran.stdout, "its own\n");
    says(&ran.stderr, &["FRAGMENTED", "RECORDED", &file, "RELEASED"])?;
    assert!(fs::metadata(&file)?.len() > 0);
    let ran = run_command(&|| stall(&["--json", "--", "sh", "-c", "exit 0"]))?.ended_with(0)?;
    let report: serde_json::Value = serde_json::from_str(&ran.stdout)?;
    assert_eq!(report["program"]["schema"], "hugewise.record/2");
    // A program that does not exist: no recording is left behind.
    let ran = run_command(&|| stall(&["--", "/nowhere/at-all"]))?.ended_with(2)?;
    says(&ran.stderr, &["/nowhere/at-all could not be started"])
}

fn refusals() -> TestResult {
    let much = run(&["bench", "stall", "--memory", "100TiB"])?.ended_with(2)?;
    says(&much.stderr, &["100TiB", "are available", "stay in reserve", "are possible"])?;
    let little = run(&["bench", "stall", "--memory", "1MiB"])?.ended_with(2)?;
    says(&little.stderr, &["1MiB", "256MiB at least"])?;
    let compared = run(&["compare", "--fragmented=100TiB", "-b", "base", "--", "true"])?.ended_with(2)?;
    says(&compared.stderr, &["100TiB", "are available"])
}

fn is_ended(signal: &str, status: i32) -> TestResult {
    let running = Running::holding_the_journal(&|| stall(&["--", "sleep", "1000"]))?;
    // During the fragmentation or while the program runs: a signal to the terminal's process group reaches
    // both.
    thread::sleep(Duration::from_millis(300));
    running.signal(signal)?;
    let ran = running.wait()?;
    let code = ran.status.code();
    assert!(code == Some(status) || code == Some(143), "{ran:#?}");
    Ok(())
}

fn killed() -> TestResult {
    kill_many(6, |_| Duration::from_millis(1500), |_, moment| kill_once(moment))
}

/// Kills `bench stall` at `moment`, restores; returns whether a journal was left behind.
fn kill_once(moment: Moment) -> Result<bool, Box<dyn Error>> {
    let before = Snapshot::take()?;
    let mut running = Running::start(&mut stall(&["--", "sleep", "1000"]))?;
    moment.wait(&mut running, JOURNAL)?;
    let id = running.child.id();
    running.child.kill()?;
    running.wait()?;
    // The kernel ends the process that fragments memory with its parent.
    kill_programs()?;
    let owner = format!("\"owner\": {id},");
    let left = fs::read_to_string(JOURNAL).is_ok_and(|journal| journal.contains(&owner));
    // Without a journal, the draft of one may be left.
    run(&["restore"])?.ended_with(0)?;
    before.is_preserved()?;
    Ok(left)
}

fn whole_machine() -> TestResult {
    let ran = run(&["bench", "stall", "--json", "--memory", "2GiB"])?;
    let report: serde_json::Value = serde_json::from_str(&ran.stdout)?;
    if report["held_to_the_end"] == false {
        return released();
    }
    let coverage = report["probes"]["fragmented"]["coverage"].as_f64();
    eprintln!("{}", report["fragmented"]);
    // Programs that end during the test free whole blocks.
    assert!(coverage.is_some_and(|share| share < 0.5), "{report:#}");
    assert!(report["fragmented"]["blocks_left"].as_u64().is_some_and(|left| left < 50), "{report:#}");
    let stalls = |when: &str| report["probes"][when]["stalls"].as_u64();
    assert!(stalls("fragmented") > stalls("before"), "{report:#}");
    Ok(())
}

fn comparison() -> TestResult {
    let arguments = ["compare", "--no-java", "--bytes", "500MB", "-b", "base,thp", "--rounds", "1", "--json"];
    let ran = run(&[&arguments[..], &["--fragmented=2GiB"]].concat())?.ended_with(INCONCLUSIVE)?;
    let comparison = ran.comparison()?;
    assert_eq!(comparison.design.fragmented, Some(Bytes(2 << 30)));
    assert_eq!(comparison.rounds.len(), 4);
    let was_released = |why: &String| why.contains("was killed during the run");
    if comparison.rounds.iter().any(|round| round.fell_back.as_ref().is_some_and(was_released)) {
        return released();
    }
    for round in &comparison.rounds {
        assert!(
            round.fell_back.is_none() && round.huge_pages_left.is_some_and(|left| left < 50),
            "{round:#?}"
        );
        assert!(round.coverage.is_some_and(|share| share < 0.5), "{round:#?}");
    }
    Ok(())
}
