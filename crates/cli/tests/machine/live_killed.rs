//! `compare --live`: SIGKILL of hugewise, and of the process, at random moments of the whole comparison.
//!
//! `HUGEWISE_KILLS` sets how often, `HUGEWISE_SEED` the moments. A moment is a random time after a random number of
//! changes between base and huge pages, which are read in /proc: two in the warm-up, and then about one in each turn.

use std::{collections::BTreeMap, error::Error, process::Command, thread, time::Duration};

use serde_json::Value;

use crate::{
    TestResult, Trial,
    collapse::{MIB, start_target, total_huge},
    killed::number,
    live::{DATA_BYTES, compare, first_jdk, load},
    needs::Need::{Free, Java, Root, Thp},
    settings::Snapshot,
    split::TARGET,
    start::{BUSY, EndedProcess, INCONCLUSIVE, Running, hugewise, run, says},
    trial,
};

/// Most changes of the pages before a kill, without `HUGEWISE_KILLS` and with it.
const MAX_CHANGES: [usize; 2] = [2, 5];
/// Longest time between the last change and the kill: longer than a warm-up, or two turns.
const MAX_SECONDS: f64 = 5.0;
/// Memory of the process without a JVM, in MiB.
const TARGET_MIB: u64 = 256;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("live: SIGKILL of the comparison, and restore", &[Root, Thp, Java, Free(1500)], killed),
        trial("live: SIGKILL of the process", &[Root, Thp, Free(1000)], process_killed),
    ]
}

/// When to kill.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Changes of the pages before it.
    changes: usize,
    /// Time after the last of these changes, or after the start.
    then: Duration,
}

/// `HUGEWISE_KILLS`, or `default`, moments; short times after a change are frequent, to meet transitions.
fn moments(default: u64) -> Result<Vec<Moment>, Box<dyn Error>> {
    let many = number("HUGEWISE_KILLS")?;
    let (kills, most) = (many.unwrap_or(default), MAX_CHANGES[usize::from(many.is_some())]);
    let seed = number("HUGEWISE_SEED")?.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("{kills} kills, HUGEWISE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut moment = || Moment {
        changes: random.usize(..=most),
        then: Duration::from_secs_f64(MAX_SECONDS * random.f64().powi(3)),
    };
    Ok((0..kills).map(|_| moment()).collect())
}

/// Starts a comparison of process `pid`, whose memory has `bytes`, and waits for the moment. Starts it again if
/// another process holds the settings.
fn started(
    make: &dyn Fn() -> Command,
    pid: &str,
    bytes: u64,
    moment: Moment,
) -> Result<Running, Box<dyn Error>> {
    let is_huge = || Ok::<_, Box<dyn Error>>(total_huge(pid)? >= bytes / 2);
    'start: loop {
        let mut running = Running::start(&mut make())?;
        let mut was_huge = is_huge()?;
        let mut changes = 0;
        while changes < moment.changes {
            if running.child.try_wait()?.is_some() {
                let ended = running.wait()?;
                if ended.stderr.contains(BUSY) {
                    continue 'start;
                }
                return Err(format!("it ended before {moment:?}: {ended:#?}").into());
            }
            let now = is_huge()?;
            changes += usize::from(now != was_huge);
            was_huge = now;
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(moment.then);
        return Ok(running);
    }
}

/// hugewise is killed, of a process that was found on base pages, and then of one that was found on huge pages. The
/// process keeps its pages and its numbers.
fn killed() -> TestResult {
    let (mut program, url) = load(&first_jdk()?, "UseG1GC")?;
    let pid = program.pid();
    let moments = moments(2)?;
    let on_base = moments.len() / 2;
    let mut phases = BTreeMap::<&str, usize>::new();
    for (kill, moment) in moments.into_iter().enumerate() {
        let before = Snapshot::take()?;
        let is_found_huge = kill >= on_base;
        if kill == on_base {
            run(&["collapse", &pid, "--region", "heap"])?;
        }
        let options = compare(&pid, &url, &["--rounds", "100"]);
        let running = started(&|| hugewise(&options), &pid, DATA_BYTES, moment)?;
        running.signal("KILL")?;
        let ended = running.wait()?;
        assert!(ended.status.code().is_none(), "kill {kill}, {moment:?}: {ended:#?}");
        let share = total_huge(&pid)? as f64 / DATA_BYTES as f64;
        let restored = run(&["restore"])?.ended_with(0)?;
        let has_restored = restored.stdout.contains(&format!("Restored: the pages of process {pid}"));
        assert!(has_restored || moment.changes == 0, "kill {kill}, {moment:?}: {restored:#?}");
        let huge = total_huge(&pid)?;
        let is_as_found = if is_found_huge { huge >= DATA_BYTES / 10 * 9 } else { huge < DATA_BYTES / 5 };
        assert!(is_as_found, "kill {kill}, {moment:?}: {huge} bytes on huge pages");
        before.settings_are_preserved()?;
        says(&run(&["restore"])?.ended_with(0)?.stdout, &["Nothing to restore"])?;
        let checked = program.ask("?\n")?;
        says(&checked, &["right after"])?;
        // The first change is the one to the pages on which the process was not found.
        let phase = match moment.changes + usize::from(!is_found_huge) {
            0..=2 => "before the first turn",
            3 => "in the first turns",
            _ => "after the first turn",
        };
        *phases.entry(phase).or_default() += 1;
        *phases.entry("in a transition").or_default() += usize::from((0.1..0.9).contains(&share));
        *phases.entry("pages put back").or_default() += usize::from(has_restored);
        eprintln!("kill {kill}, {moment:?}, {share:.2} on huge pages; {checked}; {phases:?}");
    }
    program.ends_right()
}

/// The process is killed: the comparison reports it, with the result of the turns that were complete.
fn process_killed() -> TestResult {
    let mut phases = BTreeMap::<&str, usize>::new();
    for (kill, moment) in moments(2)?.into_iter().enumerate() {
        let before = Snapshot::take()?;
        let (program, _) = start_target(TARGET, TARGET_MIB, |_| {})?;
        let pid = program.pid();
        let mut options = vec!["compare", "--live", &pid, "--allow-reclaim", "--turn", "0.5"];
        let is_json = kill % 2 == 0;
        options.extend(is_json.then_some("--json"));
        let running = started(&|| hugewise(&options), &pid, TARGET_MIB * MIB, moment)?;
        drop(program);
        let ran = running.wait()?;
        let phase = reported(&ran, &pid, moment, is_json)
            .map_err(|error| format!("kill {kill}, {moment:?}: {error}: {ran:#?}"))?;
        before.settings_are_preserved()?;
        says(&run(&["restore"])?.ended_with(0)?.stdout, &["Nothing to restore"])?;
        *phases.entry(phase).or_default() += 1;
        eprintln!("kill {kill} of the process, {moment:?}: exit status {:?}; {phases:?}", ran.status.code());
    }
    Ok(())
}

/// Checks what is reported of a process that was killed; returns in which phase it was.
fn reported(
    ran: &EndedProcess,
    pid: &str,
    moment: Moment,
    is_json: bool,
) -> Result<&'static str, Box<dyn Error>> {
    if ran.status.code() == Some(2) {
        let in_turns = format!("process {pid} ended before a turn was complete");
        let at_start =
            [format!("there is no process {pid}"), format!("process {pid} ended before its memory was read")];
        let is_reported = ran.stderr.contains(&in_turns)
            || moment.changes == 0 && at_start.iter().any(|words| ran.stderr.contains(words));
        if !is_reported || !ran.stdout.is_empty() {
            return Err("the end of the process is not reported".into());
        }
        return Ok(if moment.changes > 2 { "in the first turn" } else { "before the first turn" });
    }
    if ran.status.code() != Some(INCONCLUSIVE) || ran.stderr.contains("panicked") {
        return Err("exit status 3 was expected, without a panic".into());
    }
    says(&ran.stdout, &["the comparison ended: the process ended"])?;
    if is_json {
        let reported: Value = serde_json::from_str(&ran.stdout)?;
        let (live, rounds) = (&reported["live"], reported["rounds"].as_array().ok_or("no rounds")?);
        assert!(live["ending"] == "process_ended" && live["left"].is_null(), "{reported:#}");
        assert_eq!(live["turns"].as_array().map(Vec::len), Some(rounds.len()), "{reported:#}");
        assert!(
            !rounds.is_empty() && rounds.iter().all(|round| round["fell_back"].is_null()),
            "{reported:#}"
        );
    } else {
        says(&ran.stdout, &["base", "thp", "inconclusive", "Compare the program again"])?;
    }
    Ok("after the first turn")
}
