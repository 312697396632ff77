//! Kernel events are read or counted as lost.

use std::{
    error::Error,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use hugewise_changes::journal::{Journal, STATE_DIR};
use hugewise_linux::{
    root::Root,
    settings::Setting,
    sys::process::{monotonic_ns, thread_id},
    tracefs::{self, Event, Instance, Options, Tracefs},
};

use crate::{TestResult, Trial, needs::Need::Root as Rights, settings::MAX_WAIT_TIME, start::BUSY, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial("record: every event is read, or counted as lost", &[Rights], every_event)]
}

/// Allocates `pages` with a tracing buffer of `buffer_kib`. Returns the events of this thread that were read,
/// and those lost.
fn faults(buffer_kib: u64, pages: usize) -> Result<(u64, u64), Box<dyn Error>> {
    let root = Root::live();
    let begin = Instant::now();
    let mut journal = loop {
        match Journal::open(&root, Path::new(STATE_DIR), "a test") {
            Ok(journal) => break journal,
            Err(error) if error.to_string().contains(BUSY) && begin.elapsed() < MAX_WAIT_TIME => {
                thread::sleep(Duration::from_millis(100));
            }
            Err(error) => return Err(error.into()),
        }
    };
    let id = std::process::id();
    journal.set(Setting::TraceInstance { id }, tracefs::PRESENT)?;
    let mut instance = Instance::open(Tracefs::open(&root)?, id, Options { buffer_kib })?;
    // Before any event is enabled: an instance without a pid filter records all processes.
    instance.follow(&[thread_id()])?;
    let event = Event { system: "kmem", name: "mm_page_alloc", filter: "order == 0" };
    let format = instance.enable(event)?.ok_or("this kernel has no mm_page_alloc")?;
    let before = monotonic_ns();
    // A file in memory: each page of it is an allocation.
    let mut memory = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile())?;
    for _ in 0..pages {
        std::io::Write::write_all(&mut memory, &[1; 4096])?;
    }
    let after = monotonic_ns();
    let mut read = 0;
    let mut wrong = Vec::new();
    instance.drain(|_, page| match page {
        Ok(page) => {
            for record in page {
                match record {
                    Ok(record) if record.id == format.id && record.tid == thread_id() => {
                        read += u64::from((before..=after).contains(&record.ns));
                    }
                    other => wrong.push(format!("{other:?}")),
                }
            }
        }
        Err(damaged) => wrong.push(damaged.to_string()),
    })?;
    assert!(wrong.is_empty(), "{wrong:?}");
    let lost = instance.losses()?.events;
    drop(instance);
    assert_eq!(journal.close().failed, []);
    Ok((read, lost))
}

fn every_event() -> TestResult {
    let pages = 20_000;
    let (read, lost) = faults(8 << 10, pages)?;
    assert!(read >= pages as u64 && lost == 0, "{read} were read, {lost} lost");
    // In a buffer that is far too small events are overwritten, and read and lost events add up to all.
    let (read, lost) = faults(8, pages)?;
    assert!(lost > 0 && read > 0 && read + lost >= pages as u64, "{read} were read, {lost} lost");
    Ok(())
}
