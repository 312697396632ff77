//! SIGKILL at random moments of `record`, and `hugewise restore` after it.
//!
//! `HUGEWISE_KILLS` sets how often, `HUGEWISE_SEED` the moments.

use std::{
    error::Error,
    fs,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hugewise_record::recording::Reader;
use libtest_mimic::Trial;

use crate::{
    TestResult,
    killed::{left_behind, number},
    needs::{
        Need::{Java, Root, Thp},
        jdks,
    },
    record::AllocatingJvm,
    settings::RECORDING,
    start::{hugewise, run, says},
    trial,
};

/// Time after which the recording runs, with the JVM's log enabled.
const MAX_KILL_DELAY: Duration = Duration::from_millis(2500);

pub fn trials() -> Vec<Trial> {
    vec![trial("record: SIGKILL at any moment can be restored", &[Root, Thp, Java], any_moment)]
}

fn any_moment() -> TestResult {
    let kills = number("HUGEWISE_KILLS")?.unwrap_or(8);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_micros()));
    let seed = number("HUGEWISE_SEED")?.unwrap_or_else(now);
    println!("{kills} kills, HUGEWISE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let jdks = jdks();
    let jdk = jdks.iter().find(|jdk| jdk.major >= 11).ok_or("no JDK of 11 or later")?;
    let churning = AllocatingJvm::start(jdk, "UseParallelGC")?;
    let mut found = [0; 2];
    for kill in 0..kills {
        // Early moments are more likely, because most changes are made early.
        let share = random.f64();
        let moment = MAX_KILL_DELAY.mul_f64(share * share);
        let what = format!("kill {kill} of {seed}, {} µs after the start", moment.as_micros());
        let (settings, logs) = kill_once(&churning, moment).map_err(|error| format!("{what}: {error}"))?;
        println!("{what}: {settings} settings, {logs} logs");
        found[0] += settings;
        found[1] += logs;
    }
    println!("restored: {} settings, {} logs", found[0], found[1]);
    churning.end()
}

/// Records, kills, restores; returns the numbers of settings and of JVM logs in the journal.
fn kill_once(churning: &AllocatingJvm, moment: Duration) -> Result<(usize, usize), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.rec");
    let (name, pid) = (path.display().to_string(), churning.pid().to_string());
    let make = || {
        let _ = fs::remove_file(&path);
        hugewise(&["record", "-o", &name, &pid])
    };
    let (before, left) = left_behind(&make, moment, RECORDING)?;
    let count = |record: &serde_json::Value, key: &str| record[key].as_array().map_or(0, Vec::len);
    let found = left.as_ref().map_or((0, 0), |record| (count(record, "entries"), count(record, "jvm_logs")));
    if left.is_some() {
        let restored = run(&["restore"])?.ended_with(0)?;
        says(&restored.stdout, &["An earlier hugewise was killed during: record"])?;
        let said = |word| restored.stdout.matches(word).count();
        assert_eq!((said("Restored: "), said("Stopped: ")), found, "{restored:#?}");
    }
    let again = run(&["restore"])?.ended_with(0)?;
    // Another recording may be running by now.
    assert!(
        !again.stdout.contains("An earlier hugewise") && !again.stdout.contains("Restored: "),
        "{again:#?}"
    );
    assert_eq!(churning.logs()?, 0, "the JVM still writes a log");
    readable(&path)?;
    // Only settings are compared: the JVM still runs.
    before.settings_are_preserved()?;
    Ok(found)
}

/// Checks that the part of the recording that was written can be read.
fn readable(path: &Path) -> TestResult {
    let Ok(reader) = Reader::open(path) else { return Ok(()) };
    for line in reader {
        line?;
    }
    Ok(())
}
