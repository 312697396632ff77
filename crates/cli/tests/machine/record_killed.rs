//! SIGKILL at random moments of `record`, and `hugewise restore` after it.
//!
//! `HUGEWISE_KILLS` sets how often, `HUGEWISE_SEED` the moments.

use std::{error::Error, fs, path::Path, time::Duration};

use hugewise_record::recording::Reader;

use crate::{
    TestResult, Trial,
    killed::{Moment, kill_many, left_behind},
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
    let jdks = jdks();
    let jdk = jdks.iter().find(|jdk| jdk.major >= 11).ok_or("no JDK of 11 or later")?;
    let churning = AllocatingJvm::start(jdk, "UseParallelGC")?;
    let mut found = [0; 2];
    let killed = kill_many(
        4,
        |_| MAX_KILL_DELAY,
        |_, moment| {
            let left = kill_once(&churning, moment)?;
            let (settings, logs) = left.unwrap_or_default();
            found[0] += settings;
            found[1] += logs;
            Ok(left.is_some())
        },
    );
    println!("restored: {} settings, {} logs", found[0], found[1]);
    churning.end()?;
    killed
}

/// Records, kills, restores; returns the numbers of settings and of JVM logs in the journal, `None` if no journal
/// was left behind.
fn kill_once(churning: &AllocatingJvm, moment: Moment) -> Result<Option<(usize, usize)>, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.rec");
    let (name, pid) = (path.display().to_string(), churning.pid().to_string());
    let make = || {
        let _ = fs::remove_file(&path);
        hugewise(&["record", "-o", &name, &pid])
    };
    let (before, left) = left_behind(&make, moment, RECORDING)?;
    let count = |record: &serde_json::Value, key: &str| record[key].as_array().map_or(0, Vec::len);
    let found = left.as_ref().map(|record| (count(record, "entries"), count(record, "jvm_logs")));
    if found.is_some() {
        let restored = run(&["restore"])?.ended_with(0)?;
        says(&restored.stdout, &["An earlier hugewise was killed during: record"])?;
        let said = |word| restored.stdout.matches(word).count();
        assert_eq!(Some((said("Restored: "), said("Stopped: "))), found, "{restored:#?}");
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
