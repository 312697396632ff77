//! SIGKILL at random moments of `apply` and of the `restore` after it.
//!
//! `HUGEWISE_KILLS` sets how often, `HUGEWISE_SEED` the moments.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    TestResult, Trial,
    killed::{Moment, kill_many, number},
    needs::Need::{Pool, Root, Thp},
    settings::{APPLIED, JOURNAL, Snapshot},
    start::{BUSY, Running, hugewise, run, says},
    trial,
};

const APPLY: [&str; 7] = [
    "apply",
    "--pool",
    "2MiB=+300",
    "--khugepaged",
    "alloc_sleep_millisecs=60001",
    "--khugepaged",
    "scan_sleep_millisecs=10001",
];
const EARLIER: [&str; 5] = ["apply", "--pool", "2MiB=+40", "--khugepaged", "scan_sleep_millisecs=10002"];

/// The command that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KilledCommand {
    Apply,
    SecondApply,
    Restore,
}

pub fn trials() -> Vec<Trial> {
    let name = "SIGKILL at any moment of apply can be restored";
    vec![trial(name, &[Root, Pool, Thp], any_moment)]
}

fn any_moment() -> TestResult {
    let applies = took(&APPLY)?;
    let restores = took(&["restore"])?;
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    let command = |kill: u64| {
        // kill_many chooses any moment for every third: all commands must get both kinds.
        [
            KilledCommand::Apply,
            KilledCommand::Apply,
            KilledCommand::SecondApply,
            KilledCommand::SecondApply,
            KilledCommand::Apply,
        ][kill as usize % 5]
    };
    let killed = kill_many(
        12,
        // Up to a tenth after the expected end, because run times vary.
        |_| applies.mul_f64(1.1),
        |kill, moment| {
            let (state, journal) = kill_once(command(kill), moment)?;
            *found.entry(format!("{:?}: {state}", command(kill))).or_default() += 1;
            Ok(journal)
        },
    );
    // A `restore` has no journal of its own.
    for kill in 1..=number("HUGEWISE_KILLS")?.unwrap_or(12).div_ceil(4) {
        let moment = Moment::AfterStart(restores.mul_f64(1.1 / kill as f64));
        let (state, _) = kill_once(KilledCommand::Restore, moment)?;
        *found.entry(format!("{:?}: {state}", KilledCommand::Restore)).or_default() += 1;
    }
    println!("{found:#?}");
    killed
}

/// Duration of a command that is not killed.
fn took(arguments: &[&str]) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    run(arguments)?.ended_with(0)?;
    Ok(begin.elapsed())
}

/// Starts `command`, kills it at `moment`, restores; returns a description of the files left behind, and whether
/// one of them is a journal.
fn kill_once(command: KilledCommand, moment: Moment) -> Result<(String, bool), Box<dyn Error>> {
    let before = Snapshot::take()?;
    match command {
        KilledCommand::Apply => {}
        KilledCommand::SecondApply => drop(run(&EARLIER)?.ended_with(0)?),
        KilledCommand::Restore => drop(run(&APPLY)?.ended_with(0)?),
    }
    let arguments = if command == KilledCommand::Restore { &["restore"][..] } else { &APPLY };
    let (killed, id) = loop {
        let mut running = Running::start(&mut hugewise(arguments))?;
        moment.wait(&mut running, JOURNAL)?;
        let id = running.child.id();
        running.child.kill()?;
        let ran = running.wait()?;
        if !ran.stderr.contains(BUSY) {
            break (ran, id);
        }
    };
    assert!(!killed.stderr.contains("panicked"), "{killed:#?}");
    let ended = if killed.status.code() == Some(0) { "it had ended" } else { "killed" };
    // Another hugewise may be running already.
    let journal = fs::read_to_string(JOURNAL).is_ok_and(|text| text.contains(&format!("\"owner\": {id},")));
    let there = |is: bool| if is { "there" } else { "none" };
    let applied = Path::new(APPLIED).exists();
    let state = format!("{ended}, journal {}, applied {}", there(journal), there(applied));
    if journal {
        // The next `apply` reports the journal, or finds it complete.
        let next = run(&["apply", "--dry-run", "--pool", "2MiB=1"])?;
        assert!(!next.stderr.contains("panicked"), "{next:#?}");
    }
    run(&["restore"])?.ended_with(0)?;
    let again = run(&["restore"])?.ended_with(0)?;
    says(&again.stdout, &["Nothing to restore"])?;
    before.is_preserved()?;
    Ok((state, journal))
}
