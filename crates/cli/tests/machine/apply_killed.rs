//! SIGKILL at random moments of `apply` and of the `restore` after it.
//!
//! `HUGEWISE_KILLS` sets how often, `HUGEWISE_SEED` the moments.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use libtest_mimic::Trial;

use crate::{
    TestResult,
    killed::number,
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
    let kills = number("HUGEWISE_KILLS")?.unwrap_or(12);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_micros()));
    let seed = number("HUGEWISE_SEED")?.unwrap_or_else(now);
    println!("{kills} kills, HUGEWISE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let applies = took(&APPLY)?;
    let restores = took(&["restore"])?;
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    for kill in 0..kills {
        let command =
            [KilledCommand::Apply, KilledCommand::Apply, KilledCommand::SecondApply, KilledCommand::Restore]
                [kill as usize % 4];
        let whole = if command == KilledCommand::Restore { restores } else { applies };
        // Up to a tenth after the expected end, because run times vary.
        let moment = whole.mul_f64(random.f64() * 1.1);
        let what = format!("kill {kill} of {seed}, {command:?}, {} µs after the start", moment.as_micros());
        let state = kill_once(command, moment).map_err(|error| format!("{what}: {error}"))?;
        println!("{what}: {state}");
        *found.entry(format!("{command:?}: {state}")).or_default() += 1;
    }
    println!("{found:#?}");
    Ok(())
}

/// Duration of a command that is not killed.
fn took(arguments: &[&str]) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    run(arguments)?.ended_with(0)?;
    Ok(begin.elapsed())
}

/// Starts `command`, kills it after `moment`, restores; returns a description of the files left behind.
fn kill_once(command: KilledCommand, moment: Duration) -> Result<String, Box<dyn Error>> {
    let before = Snapshot::take()?;
    match command {
        KilledCommand::Apply => {}
        KilledCommand::SecondApply => drop(run(&EARLIER)?.ended_with(0)?),
        KilledCommand::Restore => drop(run(&APPLY)?.ended_with(0)?),
    }
    let arguments = if command == KilledCommand::Restore { &["restore"][..] } else { &APPLY };
    let (killed, id) = loop {
        let mut running = Running::start(&mut hugewise(arguments))?;
        thread::sleep(moment);
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
    Ok(state)
}
