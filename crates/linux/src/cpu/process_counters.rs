//! Hardware performance counters of another process.
//!
//! perf_event_open(2) counts single threads: a counter is opened for each thread that exists, and inherited by the
//! threads that it starts. Of threads that ended, the counts remain.

use perf_event::{
    Builder, Counter,
    events::{Event, Hardware},
};

use super::counters::{Count, page_walk_event, read, refusal};
use crate::{
    reading::{Reading, Reason},
    root::Root,
};

/// The counters of a process, for user space. Each is unknown if this machine does not have it.
pub struct ProcessCounters {
    pub cycles: Reading<ProcessCounter>,
    pub instructions: Reading<ProcessCounter>,
    pub page_walk_cycles: Reading<ProcessCounter>,
}

impl ProcessCounters {
    /// Opens the counters of process `pid`, and starts them.
    pub fn open(root: &Root, pid: u32) -> ProcessCounters {
        ProcessCounters {
            cycles: ProcessCounter::open(root, pid, Hardware::CPU_CYCLES).into(),
            instructions: ProcessCounter::open(root, pid, Hardware::INSTRUCTIONS).into(),
            page_walk_cycles: page_walk_event(root)
                .and_then(|event| ProcessCounter::open(root, pid, event))
                .into(),
        }
    }
}

/// A counter of all threads of a process.
pub struct ProcessCounter(Vec<Counter>);

impl ProcessCounter {
    fn open(root: &Root, pid: u32, event: impl Event + Clone) -> Result<ProcessCounter, Reason> {
        let mut counters = Vec::new();
        for thread in root.list(format!("proc/{pid}/task"))? {
            let Ok(thread) = thread.parse() else { continue };
            match Builder::new(event.clone()).observe_pid(thread).inherit(true).enabled(true).build() {
                Ok(counter) => counters.push(counter),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(refusal(&error)),
            }
        }
        Ok(ProcessCounter(counters))
    }

    /// Number of events since the counter was opened; unknown if it could not count all threads.
    pub fn read(&mut self) -> Result<f64, Reason> {
        let counts: Vec<Count> = self.0.iter_mut().map(read).collect::<Result<_, _>>()?;
        sum(&counts)
    }
}

fn sum(counts: &[Count]) -> Result<f64, Reason> {
    counts.iter().map(|count| count.extrapolated().into_result()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts as the kernel reports them: threads with an own counter all the time, with one for a half of the time,
    /// and a thread that did not run.
    #[test]
    fn counts_of_threads_are_extrapolated_and_added() {
        let count = |value, enabled_ns, running_ns| Count { value, enabled_ns, running_ns };
        let counts = [
            count(8_112_447_120, 2_704_149_040, 2_704_149_040),
            count(1_500_000_000, 1_000_000_000, 500_000_000),
            count(0, 0, 0),
        ];
        assert_eq!(sum(&counts), Ok(11_112_447_120.0));
        assert_eq!(sum(&[]), Ok(0.0));
        let never_ran = [counts[0], count(0, 1_000_000_000, 0)];
        assert!(sum(&never_ran).is_err_and(|why| why.to_string().contains("never ran")));
    }

    #[test]
    fn every_counter_is_counted_or_says_why() {
        let ProcessCounters { cycles, instructions, page_walk_cycles } =
            ProcessCounters::open(&Root::live(), std::process::id());
        for counter in [cycles, instructions, page_walk_cycles] {
            match counter {
                Reading::Known(mut counter) => assert!(counter.read().is_ok_and(|events| events >= 0.0)),
                Reading::Unknown { unknown } => assert!(!unknown.is_empty()),
            }
        }
    }
}
