//! A comparison that is killed after it has changed a setting.

use std::{
    error::Error,
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    TestResult,
    settings::MAX_WAIT_TIME,
    start::{QUICK_RUN, Running},
};

/// A comparison that needs a pool, and runs for longer than these tests wait for its journal.
pub fn comparison() -> Vec<&'static str> {
    [&QUICK_RUN[..], &["-b", "base,hugetlb"]].concat()
}

/// Starts a comparison and kills it when its journal contains a change.
pub fn killed(make: &dyn Fn() -> Command, journal: &str) -> TestResult {
    let mut running = changed_the_pool(make, journal)?;
    running.child.kill()?;
    running.wait().map(drop)
}

/// Starts a comparison and waits until its journal contains the complete change of the pool.
pub fn changed_the_pool(make: &dyn Fn() -> Command, journal: &str) -> Result<Running, Box<dyn Error>> {
    let begin = Instant::now();
    loop {
        let mut running = Running::start(&mut make())?;
        while running.child.try_wait()?.is_none() {
            let text = fs::read_to_string(journal).unwrap_or_default();
            if text.contains("\"now\"") && !text.contains("\"from\"") {
                return Ok(running);
            }
            thread::sleep(Duration::from_millis(1));
        }
        let ended = running.wait()?;
        if begin.elapsed() > MAX_WAIT_TIME {
            return Err(format!("it never changed the pool: {ended:#?}").into());
        }
    }
}
