//! SIGKILL at random moments, and `hugewise restore` after it.
//!
//! `HUGEWISE_KILLS` sets how often, `HUGEWISE_SEED` the moments.

use std::{
    env,
    error::Error,
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::{
    TestResult, Trial,
    needs::{
        Need::{Pool, Root},
        jdks,
    },
    settings::{JOURNAL, Snapshot},
    start::{BUSY, INCONCLUSIVE, QUICK_RUN, Running, hugewise, run, run_command, says},
    trial,
};

pub fn trials() -> Vec<Trial> {
    vec![trial("SIGKILL at any moment can be restored", &[Root, Pool], any_moment)]
}

pub fn number(variable: &str) -> Result<Option<u64>, Box<dyn Error>> {
    match env::var(variable) {
        Ok(text) => Ok(Some(text.parse().map_err(|error| format!("{variable}={text}: {error}"))?)),
        Err(_) => Ok(None),
    }
}

/// When a command is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// This time after its start.
    AfterStart(Duration),
    /// This time after its journal exists.
    AfterJournal(Duration),
}

impl Moment {
    /// Waits for the moment; returns early if the process has ended.
    pub fn wait(self, running: &mut Running, journal: &str) -> TestResult {
        let owner = format!("\"owner\": {},", running.child.id());
        let time = match self {
            Moment::AfterStart(time) => time,
            Moment::AfterJournal(time) => {
                while !fs::read_to_string(journal).is_ok_and(|text| text.contains(&owner)) {
                    if running.child.try_wait()?.is_some() {
                        return Ok(());
                    }
                    thread::sleep(Duration::from_micros(50));
                }
                time
            }
        };
        thread::sleep(time);
        Ok(())
    }
}

/// Kills a command `HUGEWISE_KILLS` times, or `default` times. `kill` gets the number of the kill and its moment,
/// and returns whether a journal was left behind; `whole` is the duration of the command. Every third moment is any
/// moment; the others lie after the journal's first appearance, and are repeated earlier until one leaves a journal
/// behind.
pub fn kill_many(
    default: u64,
    whole: impl Fn(u64) -> Duration,
    mut kill: impl FnMut(u64, Moment) -> Result<bool, Box<dyn Error>>,
) -> TestResult {
    let kills = number("HUGEWISE_KILLS")?.unwrap_or(default);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_micros()));
    let seed = number("HUGEWISE_SEED")?.unwrap_or_else(now);
    println!("{kills} kills, HUGEWISE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut hits = 0;
    for number in 0..kills {
        let mut time = whole(number).mul_f64(random.f64());
        loop {
            let moment = if number % 3 == 0 { Moment::AfterStart(time) } else { Moment::AfterJournal(time) };
            let hit = kill(number, moment)
                .map_err(|error| format!("kill {number} of {seed}, {moment:?}: {error}"))?;
            hits += u64::from(hit);
            if hit || number % 3 == 0 || time.is_zero() {
                break;
            }
            time = if time > Duration::from_micros(100) { time / 2 } else { Duration::ZERO };
        }
    }
    println!("{hits} of {kills} kills left a journal behind");
    if hits * 2 > kills {
        Ok(())
    } else {
        Err(format!("only {hits} of {kills} kills left a journal behind").into())
    }
}

fn any_moment() -> TestResult {
    let java = jdks().first().map(|jdk| jdk.java.clone());
    let embedded = || hugewise(&[&QUICK_RUN[..], &["-b", "base,hugetlb"]].concat());
    let of_java = || {
        let mut command = hugewise(&["compare", "--rounds", "1", "-b", "base,hugetlb", "--"]);
        let java = java.as_deref().unwrap_or(Path::new("java"));
        command.arg(java).args(["-Xmx128m", "-Xms128m", "-XX:+AlwaysPreTouch", "-version"]);
        command
    };
    let whole = [duration(&embedded)?, if java.is_some() { duration(&of_java)? } else { Duration::ZERO }];
    let with_java = |kill: u64| kill % 3 == 2 && java.is_some();
    let mut changed = 0;
    let killed = kill_many(
        6,
        |kill| whole[usize::from(with_java(kill))],
        |kill, moment| {
            let make: &dyn Fn() -> Command = if with_java(kill) { &of_java } else { &embedded };
            let settings = kill_once(make, moment)?;
            changed += usize::from(settings.is_some_and(|count| count > 0));
            Ok(settings.is_some())
        },
    );
    println!("{changed} journals had changed settings");
    killed?;
    if changed > 0 { Ok(()) } else { Err("no kill left a changed setting behind".into()) }
}

/// Duration of the command if it is not killed.
fn duration(make: &dyn Fn() -> Command) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    run_command(make)?.ended_with(INCONCLUSIVE)?;
    Ok(begin.elapsed())
}

/// Starts the command and kills it at `moment`. Returns the state of the machine before, and the journal
/// that was left behind, `None` if there is none.
pub fn left_behind(
    make: &dyn Fn() -> Command,
    moment: Moment,
    journal: &str,
) -> Result<(Snapshot, Option<Value>), Box<dyn Error>> {
    loop {
        let before = Snapshot::take()?;
        let mut running = Running::start(&mut make())?;
        moment.wait(&mut running, journal)?;
        let id = running.child.id();
        running.child.kill()?;
        let killed = running.wait()?;
        if killed.stderr.contains(BUSY) {
            continue;
        }
        assert!(!killed.stderr.contains("panicked"), "{killed:#?}");
        let record: Option<Value> =
            fs::read(journal).ok().map(|text| serde_json::from_slice(&text)).transpose()?;
        return Ok((before, record.filter(|record| record["owner"] == id)));
    }
}

/// Starts, kills, restores. Returns the number of settings in the journal, `None` if no journal was left
/// behind.
fn kill_once(make: &dyn Fn() -> Command, moment: Moment) -> Result<Option<usize>, Box<dyn Error>> {
    let (before, left) = left_behind(make, moment, JOURNAL)?;
    let settings = match &left {
        None => None,
        Some(record) => Some(record["entries"].as_array().ok_or("a journal without entries")?.len()),
    };
    if let Some(record) = &left {
        // The next measurement is refused with the reason, and changes nothing.
        for next in [&QUICK_RUN[..], &["bench", "touch", "--bytes", "1000", "--forks", "1"]] {
            let refused = run(next)?.ended_with(2)?;
            says(
                &refused.stderr,
                &["was ended before it could clean up", &record["owner"].to_string(), "hugewise restore"],
            )?;
        }
        let restored = run(&["restore"])?.ended_with(0)?;
        says(&restored.stdout, &["An earlier hugewise was killed during: compare"])?;
        let said = restored.stdout.matches("Restored: ").count();
        assert_eq!(Some(said), settings, "{restored:#?}");
    }
    let again = run(&["restore"])?.ended_with(0)?;
    says(&again.stdout, &["Nothing to restore"])?;
    before.is_preserved()?;
    Ok(settings)
}
