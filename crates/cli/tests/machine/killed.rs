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

use libtest_mimic::Trial;
use serde_json::Value;

use crate::{
    TestResult,
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

fn any_moment() -> TestResult {
    let kills = number("HUGEWISE_KILLS")?.unwrap_or(12);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_micros()));
    let seed = number("HUGEWISE_SEED")?.unwrap_or_else(now);
    println!("{kills} kills, HUGEWISE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let java = jdks().first().map(|jdk| jdk.java.clone());
    let embedded = || hugewise(&[&QUICK_RUN[..], &["-b", "base,hugetlb"]].concat());
    let of_java = || {
        let mut command = hugewise(&["compare", "--rounds", "1", "-b", "base,hugetlb", "--"]);
        let java = java.as_deref().unwrap_or(Path::new("java"));
        command.arg(java).args(["-Xmx128m", "-Xms128m", "-XX:+AlwaysPreTouch", "-version"]);
        command
    };
    let whole = [duration(&embedded)?, if java.is_some() { duration(&of_java)? } else { Duration::ZERO }];
    let mut found = [0, 0];
    for kill in 0..kills {
        let with_java = kill % 3 == 2 && java.is_some();
        let make: &dyn Fn() -> Command = if with_java { &of_java } else { &embedded };
        let moment = whole[usize::from(with_java)].mul_f64(random.f64());
        let what =
            format!("kill {kill} of {seed}, {} ms after the start, java {with_java}", moment.as_millis());
        let settings = kill_once(make, moment).map_err(|error| format!("{what}: {error}"))?;
        match settings {
            None => println!("{what}: no journal"),
            Some(count) => {
                println!("{what}: a journal with {count} changed settings");
                found[usize::from(count > 0)] += 1;
            }
        }
    }
    println!("journals left behind: {} with changed settings, {} without", found[1], found[0]);
    Ok(())
}

/// Duration of the command if it is not killed.
fn duration(make: &dyn Fn() -> Command) -> Result<Duration, Box<dyn Error>> {
    let mut took = Duration::ZERO;
    // Twice: the first run may have waited for another hugewise.
    for _ in 0..2 {
        let begin = Instant::now();
        run_command(make)?.ended_with(INCONCLUSIVE)?;
        took = begin.elapsed();
    }
    Ok(took)
}

/// Starts the command and kills it after `moment`. Returns the state of the machine before, and the journal
/// that was left behind, `None` if there is none.
pub fn left_behind(
    make: &dyn Fn() -> Command,
    moment: Duration,
    journal: &str,
) -> Result<(Snapshot, Option<Value>), Box<dyn Error>> {
    loop {
        let before = Snapshot::take()?;
        let mut running = Running::start(&mut make())?;
        thread::sleep(moment);
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
fn kill_once(make: &dyn Fn() -> Command, moment: Duration) -> Result<Option<usize>, Box<dyn Error>> {
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
