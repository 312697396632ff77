//! `restore` with hostile processes around it.

#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    fs,
    time::{Duration, Instant},
};

use hugewise_linux::units::Bytes;

use crate::{
    TestResult, Trial, attack,
    bounded::{AT_ONCE, caged, within},
    hostile::{Hostile, Place},
    killed_comparison::{comparison, killed},
    namespaces::forgery,
    needs::Need::{MemoryGroup, Pool, Thp},
    reading::{ENDLESS, NR},
    settings::JOURNAL,
    start::hugewise,
    waiting::{DELAYS, recording},
};

const MEMORY: Bytes = Bytes(256 << 20);
/// Deadline, ten times as long as it should take.
const DEADLINE: Duration = Duration::from_secs(20);
const MAX_PTES: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";

pub fn trials() -> Vec<Trial> {
    let needs = [MemoryGroup, Pool, Thp];
    vec![attack("restoring: 20 hostile processes, in 256 MiB", &needs, among_hostiles).representing(false)]
}

fn settings() -> Result<[String; 3], Box<dyn Error>> {
    Ok([fs::read_to_string(NR)?, fs::read_to_string(MAX_PTES)?, fs::read_to_string(DELAYS)?])
}

/// All kinds of hostile processes; some of them are two processes.
fn hostiles(place: &Place) -> Result<Vec<Hostile>, Box<dyn Error>> {
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(place.hostile("image", &["environ", ENDLESS])?);
        all.push(place.hostile("image", &["cmdline", ENDLESS])?);
        all.push(place.jvm("full")?);
    }
    for number in 0..2 {
        all.extend(forgery(place, &format!("compare {number}"), "true")?);
        all.push(place.overlay("/run", "hugewise")?);
        all.push(place.hostile("threads", &["1"])?);
        let stopped = place.hostile("memory", &["64"])?;
        stopped.stop()?;
        all.push(stopped);
    }
    let folder = place.of_user()?.display().to_string();
    all.push(place.hostile("mappings", &["60000", &folder])?);
    Ok(all)
}

fn among_hostiles() -> TestResult {
    let (place, before) = (Place::new()?, settings()?);
    within(AT_ONCE, &["apply", "--khugepaged", "max_ptes_none=509"])?.ended_with(0)?;
    killed(&|| hugewise(&comparison()), JOURNAL)?;
    let jvm = place.jvm("full")?;
    let mut recording = recording(&place, &jvm.pid())?;
    recording.child.kill()?;
    recording.wait()?;
    let changed = settings()?;
    assert!((0..3).all(|at| changed[at] != before[at]), "{changed:?} is to differ from {before:?}");
    let hostiles = hostiles(&place)?;
    let begin = Instant::now();
    let restored = caged(MEMORY, DEADLINE, &["restore"])?;
    println!(
        "restored beside {} hostile process groups in {:.2} s",
        hostiles.len() + 1,
        begin.elapsed().as_secs_f64()
    );
    if settings()? != before {
        return Err(format!("{before:?} before, {:?} now: {restored:?}", settings()?).into());
    }
    drop((jvm, hostiles));
    within(AT_ONCE, &["restore"])?.ended_with(0).map(drop)
}
