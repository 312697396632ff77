//! Hardware performance counters of the TLB, for this process.
//!
//! Most virtual machines have none; every count is then unknown, with the reason, instead of zero.

use std::{collections::BTreeMap, io};

use perf_event::{
    Builder, Counter, ReadFormat,
    events::{Cache, CacheId, CacheOp, CacheResult, Event, Hardware, Raw},
};
use serde::{Deserialize, Serialize};

use crate::{
    reading::{Reading, Reason},
    root::Root,
};

/// A count as reported by the kernel. With more events than hardware counters, a counter runs for a part of
/// the time only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Number of events.
    pub value: u64,
    /// Nanoseconds in which the counter was enabled.
    pub enabled_ns: u64,
    /// Nanoseconds in which the counter ran.
    pub running_ns: u64,
}

impl Count {
    /// Number of events, extrapolated to the enabled time; 0 of a thread that did not run.
    pub(super) fn extrapolated(self) -> Reading<f64> {
        match (self.enabled_ns, self.running_ns) {
            (0, _) => Reading::Known(0.0),
            (_, 0) => Reading::unknown("the counter never ran: other events use the hardware counters"),
            (enabled, running) => Reading::Known(self.value as f64 * enabled as f64 / running as f64),
        }
    }

    /// Events per operation, extrapolated to the enabled time.
    pub fn per_operation(self, operations: u64) -> Reading<f64> {
        if self.running_ns == 0 || operations == 0 {
            return Reading::unknown("the counter never ran: other events use the hardware counters");
        }
        let scale = self.enabled_ns as f64 / self.running_ns as f64;
        Reading::Known(self.value as f64 * scale / operations as f64)
    }
}

/// The counts of one section of work, by the name in `perf list`.
pub type Counts = BTreeMap<String, Reading<Count>>;

/// Counters for a section of work of this thread.
pub struct Counters(Vec<(&'static str, Result<Counter, Reason>)>);

impl Counters {
    /// Opens the counters of this machine, for user space only.
    pub fn open(root: &Root) -> Counters {
        let dtlb = |result| Cache { which: CacheId::DTLB, operation: CacheOp::READ, result };
        Counters(vec![
            ("cycles", counter(Hardware::CPU_CYCLES)),
            ("dTLB-loads", counter(dtlb(CacheResult::ACCESS))),
            ("dTLB-load-misses", counter(dtlb(CacheResult::MISS))),
            ("page-walk-cycles", page_walk_event(root).and_then(counter)),
        ])
    }

    /// Counts during `work`.
    pub fn count_during<T>(mut self, work: impl FnOnce() -> T) -> (T, Counts) {
        for (_, counter) in &mut self.0 {
            if let Err(error) = counter.as_mut().map_or(Ok(()), Counter::enable) {
                *counter = Err(error.into());
            }
        }
        let result = work();
        for (_, counter) in &mut self.0 {
            let _ = counter.as_mut().map(Counter::disable);
        }
        let counts = self.0.into_iter().map(|(name, counter)| {
            let count = counter.and_then(|mut counter| read(&mut counter));
            (name.to_owned(), Reading::from(count))
        });
        (result, counts.collect())
    }
}

fn counter(event: impl Event) -> Result<Counter, Reason> {
    let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
    Builder::new(event).read_format(times).build().map_err(|error| refusal(&error))
}

/// Why a counter cannot be opened.
pub(super) fn refusal(error: &io::Error) -> Reason {
    Reason::new(match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("not permitted ({error}): needs CAP_PERFMON or kernel.perf_event_paranoid ≤ 2")
        }
        _ => format!("not available on this machine ({error})"),
    })
}

pub(super) fn read(counter: &mut Counter) -> Result<Count, Reason> {
    let data = counter.read_full()?;
    let nanoseconds = |time: Option<std::time::Duration>| {
        time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    };
    Ok(Count {
        value: data.count(),
        enabled_ns: nanoseconds(data.time_enabled()),
        running_ns: nanoseconds(data.time_running()),
    })
}

/// Cycles with at least one active page walk for a load.
///
/// `DTLB_LOAD_MISSES.WALK_ACTIVE` of Intel's cores since Skylake: event 08h, umask 10h, cmask 1 (Intel 64 and
/// IA-32 Architectures performance monitoring events). No equivalent event of other CPUs is known.
pub(super) fn page_walk_event(root: &Root) -> Result<Raw, Reason> {
    let text = root.read("proc/cpuinfo")?;
    let is_intel = text.lines().any(|line| {
        line.split_once(':').is_some_and(|(k, v)| k.trim() == "vendor_id" && v.trim() == "GenuineIntel")
    });
    if is_intel { Ok(Raw::new(0x0100_1008)) } else { Reason::err("no such event known for this CPU") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_half_the_time_is_scaled() {
        let count = Count { value: 500, enabled_ns: 2_000, running_ns: 1_000 };
        assert_eq!(count.per_operation(100), Reading::Known(10.0));
    }

    #[test]
    fn a_counter_that_never_ran_is_not_zero() {
        let count = Count { value: 0, enabled_ns: 2_000, running_ns: 0 };
        assert!(count.per_operation(100).reason().is_some());
    }

    #[test]
    fn every_counter_is_counted_or_says_why() {
        let (_, counts) = Counters::open(&Root::live()).count_during(|| std::hint::black_box(1));
        for name in ["cycles", "dTLB-loads", "dTLB-load-misses", "page-walk-cycles"] {
            let count = &counts[name];
            assert!(count.known().is_some() || count.reason().is_some_and(|why| !why.is_empty()), "{name}");
        }
    }
}
