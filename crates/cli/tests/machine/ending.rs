//! Signals, and two processes at the same time.

use std::{fs, time::Duration};

use crate::{
    TestResult, Trial,
    needs::Need::{Pool, Root},
    settings::JOURNAL,
    start::{BUSY, QUICK_RUN, Running, hugewise, says, wait_until},
    trial,
};

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Pool];
    let mut trials = vec![trial("two at once: the second is refused", &needs, the_second_is_refused)];
    for (signal, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let name = format!("SIG{signal} ends a comparison in order");
        trials.push(trial(&name, &needs, move || ends_in_order(signal, status)));
    }
    trials.push(trial("SIGTERM ends a comparison whose program ignores SIGTERM", &needs, ends_the_deaf));
    trials
}

/// A running comparison that has enlarged its pool.
fn with_a_grown_pool() -> Result<Running, Box<dyn std::error::Error>> {
    // Enough rounds that it does not end before the signal.
    let mut arguments = [&QUICK_RUN[..], &["-b", "base,hugetlb"]].concat();
    arguments[5] = "100000";
    let running = Running::holding_the_journal(&|| hugewise(&arguments))?;
    wait_until("its pool has grown", || {
        Ok(fs::read_to_string(JOURNAL).is_ok_and(|journal| journal.contains("pool")))
    })?;
    Ok(running)
}

fn ends_in_order(signal: &str, status: i32) -> TestResult {
    let running = with_a_grown_pool()?;
    // During a run.
    std::thread::sleep(Duration::from_millis(150));
    running.signal(signal)?;
    let ran = running.wait()?.ended_with(status)?;
    let partial = ran.stdout.is_empty()
        || ran.stdout.contains("interrupted: the result is that of the runs before the signal");
    assert!(partial, "{}", ran.stdout);
    says(&ran.stderr, &["interrupted", "all settings are restored"])
}

fn ends_the_deaf() -> TestResult {
    let deaf = ["compare", "-b", "base", "--", "sh", "-c", "trap '' TERM INT; while :; do sleep 1; done"];
    let running = Running::holding_the_journal(&|| hugewise(&deaf))?;
    std::thread::sleep(Duration::from_millis(200));
    running.signal("TERM")?;
    running.wait()?.ended_with(143)?;
    Ok(())
}

fn the_second_is_refused() -> TestResult {
    let first = with_a_grown_pool()?;
    let id = first.child.id().to_string();
    for arguments in [&QUICK_RUN[..], &["restore"], &["bench", "touch", "--bytes", "1000"]] {
        let second = Running::start(&mut hugewise(arguments))?.wait()?.ended_with(2)?;
        says(&second.stderr, &[BUSY, &id, "wait until it ends"])?;
        assert_eq!(second.stdout, "");
    }
    first.signal("INT")?;
    first.wait()?.ended_with(130)?;
    Ok(())
}
